"""Orthogonal updates: only the part of f that is orthogonal to x is added."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import NormalisedInput
from rskip.connections.norms import at_least_float32
from rskip.formulas.parameters import TextNorm
from rskip.formulas.registry import register_connection
from rskip.kernel_forms import GatedSum

EPS = 1e-6  # the paper's value, added to x·x


@register_connection(
    "orthogonal",
    source="Oh et al. 2025, the feature-wise form, as in its code (BootsofLagrangian/ortho-residual)",
)
class Orthogonal(NormalisedInput):
    """y = x + f - (x·f/(x·x + 1e-6))x, where x·f is over the features. With a normalisation f = F(norm(x)).

    The factor is one number per position, in float32 or better. Members: `norm` (if given; sequences only).
    """

    closing_norm = True

    def __init__(self, features: int, *, norm: TextNorm | None, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)

    def kernel_form(self) -> GatedSum:
        return GatedSum(form="orthogonal", branch_norm=self.norm)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        given, output = at_least_float32(x), at_least_float32(f)
        share = (given * output).sum(self.feature_dim, keepdim=True)
        share = share / (given.square().sum(self.feature_dim, keepdim=True) + EPS)
        return x + f - share.to(x.dtype) * x
