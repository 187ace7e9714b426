"""Pre-norm blocks that depend on their depth: LayerNorm scaling, Mix-LN and Keel."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.options import Bounds
from rskip.connections.place import Place
from rskip.connections.prenorm import PreNorm
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "lns",
    formula="x + F(norm(x)/√l), l the layer, and one normalisation closes the stack",
    source="Sun et al. 2025, LayerNorm Scaling",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="The Curse of Depth in Large Language Models",
        authors="Wenfang Sun et al.",
        url="https://arxiv.org/abs/2502.05795",
    ),
)
class LayerNormScaling(PreNorm):
    """y = x + f, where f = F(norm(x)/√l) in the stack's l-th layer, counted from 1. Members: `norm`."""

    def __init__(self, features: int, *, norm: str, place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        self.scale = 1 / math.sqrt(place.layer)

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.scale

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(branch_norm=self.norm, input_scale=self.scale)


@register_connection(
    "mixln",
    formula="norm(x + f) in the first layers, x + F(norm(x)) in the others, and one normalisation closes the stack",
    source="Li et al. 2025",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN",
        authors="Pengxiang Li, Lu Yin, Shiwei Liu",
        url="https://arxiv.org/abs/2412.13795",
    ),
)
class MixLN(Connection):
    """Post-norm, y = norm(x + f), in the first ⌊ratio·L⌋ of L layers; pre-norm, y = x + F(norm(x)), in the rest.

    Members: `norm`.
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        ratio: Annotated[float, Bounds(0, 1)] = 0.25,
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.postnorm = place.layer <= math.floor(ratio * place.layers + 1e-9)  # 0.58 · 50 is 28.999... in floats
        self.norm = build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.postnorm else self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return self.norm(x + f) if self.postnorm else x + f

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(norms=(self.norm,)) if self.postnorm else NormalisedSum(branch_norm=self.norm)


@register_connection(
    "keel",
    formula="norm₂(αx + F(norm₁(x))), α the number of blocks in the stack",
    source="Chen and Wei 2026",
    norms=("ln", "rms"),
    default_norm="ln",
    text_only=True,
    paper=Paper(
        title="Post-LayerNorm Is Back: Stable, ExpressivE, and Deep",
        authors="Chen Chen, Lai Wei",
        url="https://arxiv.org/abs/2601.19895",
    ),
)
class Keel(Connection):
    """y = norm₂(αx + f), where f = F(norm₁(x)) and α is the number of blocks in the stack.

    Members: `norm` (norm₁), `output_norm` (norm₂).
    """

    def __init__(self, features: int, *, norm: str, place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.scale = place.sublayers
        self.norm = build_norm(norm, features, feature_dim)
        self.output_norm = build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return self.output_norm(torch.add(f, x, alpha=self.scale))

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(norms=(self.output_norm,), scale=self.scale, branch_norm=self.norm)
