"""NormFormer: pre-norm blocks with more normalisations inside the branch, and scaled heads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rskip.connections.connection import InnerNorm
from rskip.connections.place import Place
from rskip.connections.prenorm import PreNorm
from rskip.connections.registry import register_connection
from rskip.kernel_forms import NormalisedSum
from rskip.settings.paper import Paper


@register_connection(
    "normformer",
    formula="x + F(norm(x)), F normalised after attention and before its last map too, heads scaled, and one "
    "normalisation closes the stack; with res_scale w ⊙ x in a feed-forward block",
    source="Shleifer et al. 2021, section 2",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="NormFormer: Improved Transformer Pretraining with Extra Normalization",
        authors="Sam Shleifer, Jason Weston, Myle Ott",
        url="https://arxiv.org/abs/2110.09456",
        part="section 2",
    ),
)
class NormFormer(PreNorm):
    """y = x + f, where f = F(norm(x)). With `res_scale`, y = w ⊙ x + f in feed-forward blocks; w is learned from 1.

    Self-attention multiplies each head's output by a learned factor and normalises its own output. The feed-forward
    branch normalises its hidden features. Cross-attention is a plain pre-norm block, as in fairseq. Heads are scaled
    before the output map, as in the paper; fairseq 0.12.2 scales them after it. Members: `norm`, `skip_weight` (C).
    """

    def __init__(
        self, features: int, *, norm: str, res_scale: bool = False, place: Place, feature_dim: int = -1
    ) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        self._self_attention = place.branch == "self_attn"
        inner: dict[str, Mapping[InnerNorm, str]] = {"self_attn": {"output": norm}, "ffn": {"hidden": norm}}
        self._inner_norms = inner.get(place.branch, {})
        scaled = res_scale and place.branch == "ffn"
        self.skip_weight = nn.Parameter(torch.ones(features)) if scaled else None

    def _initialise(self) -> None:
        if self.skip_weight is not None:
            nn.init.ones_(self.skip_weight)

    @property
    def inner_norms(self) -> Mapping[InnerNorm, str]:
        return self._inner_norms

    @property
    def scales_heads(self) -> bool:
        return self._self_attention

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return x + f if self.skip_weight is None else self.skip_weight * x + f

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(scale=1.0 if self.skip_weight is None else self.skip_weight, branch_norm=self.norm)
