"""Orthogonal updates: only the part of f that is orthogonal to x is added."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import NormalisedInput
from rskip.connections.norms import at_least_float32
from rskip.formulas.parameters import TextNorm
from rskip.formulas.registry import register_connection
from rskip.kernel_forms import GatedSum
from rskip.settings.paper import Paper

EPS = 1e-6  # the paper's value, added to x·x


@register_connection(
    "orthogonal",
    formula="x + f - (x·f/(x·x + 1e-6))x, x·f over the features; with a norm f = F(norm(x)), and one closes the stack",
    source="Oh et al. 2025, the feature-wise form, as in its code (BootsofLagrangian/ortho-residual)",
    paper=Paper(
        title="Revisiting Residual Connections: Orthogonal Updates for Stable and Efficient Deep Networks",
        authors="Giyeong Oh, Woohyun Cho, Siyeol Kim, Suhwan Choi, Youngjae Yu",
        url="https://arxiv.org/abs/2505.11881",
    ),
)
class Orthogonal(NormalisedInput):
    """y = x + f - sx with s = x·f/(x·x + 1e-6), one s per position, in float32 or better.

    With a normalisation (sequences only) f = F(norm(x)). Members: `norm` (if given).
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
