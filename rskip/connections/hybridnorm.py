"""HybridNorm: attention with normalised queries, keys and values, and post-norm feed-forward blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from rskip.connections.connection import Connection, InnerNorm
from rskip.connections.norms import build_norm
from rskip.connections.place import Place
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "hybridnorm",
    formula="x + F(x), attention with normalised queries, keys and values; n + F(n), n = norm(x), in a feed-forward "
    "block; one normalisation closes the stack",
    source="Zhuo et al. 2025, section 3; its HybridNorm* is first=prenorm",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization",
        authors="Zhijian Zhuo, Yutao Zeng, Ya Wang, Sijun Zhang, Jian Yang, Xiaoqing Li, Xun Zhou, Jinwen Ma",
        url="https://arxiv.org/abs/2503.04598",
        part="section 3",
    ),
)
class HybridNorm(Connection):
    """y = x + f. The block before a feed-forward block returns norm(x + f), which is x and F's input in the next one.

    Every attention, including cross-attention, normalises the queries, keys and values of each head. With
    `first=prenorm` the blocks of the stack's first layer are x + F(norm(x)). Members: `norm`, in blocks with one.
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        first: Literal["hybrid", "prenorm"] = "hybrid",
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.prenorm = first == "prenorm" and place.layer == 1
        self.norm = build_norm(norm, features, feature_dim) if self.prenorm or place.precedes_ffn else None
        self._attends, self._kind = place.branch != "ffn", norm

    @property
    def inner_norms(self) -> Mapping[InnerNorm, str]:
        return dict.fromkeys(("query", "key", "value"), self._kind) if self._attends else {}

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.prenorm and self.norm is not None else x

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        y = x + f
        return y if self.prenorm or self.norm is None else self.norm(y)

    def as_norms(self) -> NormalisedSum:
        if self.norm is None:
            return NormalisedSum()
        return NormalisedSum(branch_norm=self.norm) if self.prenorm else NormalisedSum(norms=(self.norm,))
