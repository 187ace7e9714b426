"""The pre-norm connection: the branch's input is normalised, and the sum is not."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "prenorm",
    formula="x + F(norm(x)), and one normalisation closes the stack",
    source="the usual pre-norm Transformer (He et al. 2016b; Xiong et al. 2020)",
    norms=("ln", "rms"),
    closing_norm=True,
    paper=Paper(
        title="On Layer Normalization in the Transformer Architecture",
        authors="Ruibin Xiong et al.",
        url="https://arxiv.org/abs/2002.04745",
    ),
)
class PreNorm(Connection):
    """y = x + f, where f = F(norm(x)). Members: `norm`."""

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return x + f

    def as_norms(self) -> NormalisedSum | None:
        return NormalisedSum(branch_norm=self.norm)
