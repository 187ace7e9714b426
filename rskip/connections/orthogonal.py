"""Orthogonal updates: only the part of f that is orthogonal to x is added."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.norms import at_least_float32, build_norm
from rskip.connections.registry import register_connection
from rskip.kernel_forms import GatedSum
from rskip.settings.paper import Paper

EPS = 1e-6  # the paper's value, added to x·x


@register_connection(
    "orthogonal",
    formula="x + f - (x·f/(x·x + 1e-6))x, x·f over the features; with a norm f = F(norm(x)), and one closes the stack",
    source="Oh et al. 2025, the feature-wise form, as in its code (BootsofLagrangian/ortho-residual)",
    norms=(None, "ln", "rms"),
    closing_norm=lambda spec: spec.norm is not None,
    paper=Paper(
        title="Revisiting Residual Connections: Orthogonal Updates for Stable and Efficient Deep Networks",
        authors="Giyeong Oh, Woohyun Cho, Siyeol Kim, Suhwan Choi, Youngjae Yu",
        url="https://arxiv.org/abs/2505.11881",
    ),
)
class Orthogonal(Connection):
    """y = x + f - sx with s = x·f/(x·x + 1e-6), one s per position, in float32 or better.

    With a normalisation (sequences only) f = F(norm(x)). Members: `norm` (if given).
    """

    def __init__(self, features: int, *, norm: str | None, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)

    def as_gates(self) -> GatedSum:
        return GatedSum(form="orthogonal", branch_norm=self.norm)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        given, output = at_least_float32(x), at_least_float32(f)
        share = (given * output).sum(self.feature_dim, keepdim=True)
        share = share / (given.square().sum(self.feature_dim, keepdim=True) + EPS)
        return x + f - share.to(x.dtype) * x
