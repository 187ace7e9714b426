"""GPAS: pre-norm blocks whose output is scaled down in the forward pass and not in the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rskip.connections.connection import NormalisedInput
from rskip.connections.norms import at_least_float32
from rskip.formulas.parameters import TextNorm
from rskip.formulas.registry import register_connection
from rskip.kernel_forms import NormalisedSum


@register_connection(
    "gpas",
    source="Chen et al. 2025, Pre + GPAS, as in its code (dandingsky/GPAS), with one g per block",
)
class GPAS(NormalisedInput):
    """y = z - silu(g)·sg(z) with z = x + F(norm(x)); sg passes no gradient.

    So y is (1 - silu(g))·z, and y's gradient in z is the identity. g is learned and starts at 0, where y = z.
    Members: `norm`, `damping` (g, of shape (1)).
    """

    closing_norm = True

    def __init__(self, features: int, *, norm: TextNorm = "ln", feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        self.damping = self.learned("damping", 0.0, 1)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        z = x + f
        return torch.addcmul(z, self._removed.to(z.dtype), z.detach(), value=-1)

    @property
    def _removed(self) -> Tensor:
        """silu(g)."""
        return functional.silu(at_least_float32(self.damping))

    def kernel_form(self) -> NormalisedSum:
        kept = 1 - self._removed
        return NormalisedSum(scale=kept, branch_scale=kept, branch_norm=self.norm)
