"""The value residual: every self-attention after a stack's first mixes the values of the first into its own.

Source: Zhou et al. 2025, Value Residual Learning (Identity-ResFormer and Learnable-ResFormer). B batch, H heads,
T positions, D features of a head.
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

    λ₁ and λ₂ are 1/2, or start there and are learned. In the first layer V₁ is V. Member: `factors` (2), λ₁ and λ₂
    if they are learned.
    """

    def __init__(self, *, learned: bool, layer: int) -> None:
        """layer: its number in the stack, from 1."""
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
            if first.values is None:  # already set when activations are recomputed
                first.values = own
            return own
        assert first.values is not None
        if self.factors is None:
            return torch.lerp(own, first.values, 0.5)
        return self.factors[0] * first.values + self.factors[1] * own


def build_value_residual(kind: str, layer: int) -> ValueResidual | None:
    """The value residual of a layer, by `value_residual` in the model's configuration. Layers are numbered from 1."""
    return None if kind == "none" else ValueResidual(learned=kind == "learned", layer=layer)
