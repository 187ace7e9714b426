"""The value residual: each later self-attention of a stack mixes the first one's values into its own.

Source: Zhou et al. 2025, Value Residual Learning (Identity-ResFormer and Learnable-ResFormer). B batch, H heads,
T positions, D features per head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class FirstValues:
    """The values (B, H, T, D) of a stack's first self-attention in one forward pass; None before it has run.

    Each forward pass creates one and passes it to every layer.
    """

    values: Tensor | None = None


class ValueResidual(nn.Module):
    """λ₁V₁ + λ₂V, from the first layer's values V₁ and a layer's own V.

    λ₁ and λ₂ are 1/2, or start at 1/2 and are learned. In the first layer V₁ is V. Member: `factors` (2), which are
    λ₁ and λ₂, if they are learned.
    """

    def __init__(self, *, learned: bool, layer: int) -> None:
        """Builds the factors of a layer, which is numbered from 1 in its stack."""
        super().__init__()
        self.is_first = layer == 1
        self.factors = nn.Parameter(torch.full((2,), 0.5)) if learned and not self.is_first else None

    def reset_parameters(self) -> None:
        """Sets the factors to 1/2."""
        if self.factors is not None:
            nn.init.constant_(self.factors, 0.5)

    def forward(self, own: Tensor, first: FirstValues) -> Tensor:
        """The values that the layer attends to, in the shape of its own."""
        if self.is_first:
            if first.values is None:  # it is already set when activations are recomputed
                first.values = own
            return own
        assert first.values is not None
        if self.factors is None:
            return torch.lerp(own, first.values, 0.5)
        return self.factors[0] * first.values + self.factors[1] * own


def build_value_residual(kind: str, layer: int) -> ValueResidual | None:
    """The value residual of a layer (numbered from 1), as the configuration's `value_residual` says, or None."""
    return None if kind == "none" else ValueResidual(learned=kind == "learned", layer=layer)
