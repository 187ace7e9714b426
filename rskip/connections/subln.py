"""Sub-LN (Magneto): a second normalisation inside each pre-norm branch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rskip.connections.connection import InnerNorm
from rskip.connections.place import Place
from rskip.connections.prenorm import PreNorm
from rskip.connections.registry import register_connection
from rskip.settings.paper import Paper


@register_connection(
    "subln",
    formula="x + F(norm(x)), F normalised before its last map too, and one normalisation closes the stack",
    source="Wang et al. 2023, Magneto",
    norms=("ln", "rms"),
    default_norm="ln",
    closing_norm=True,
    paper=Paper(
        title="Magneto: A Foundation Transformer",
        authors="Hongyu Wang, Shuming Ma, Shaohan Huang, Li Dong, Wenhui Wang et al.",
        url="https://arxiv.org/abs/2210.06423",
    ),
)
class SubLN(PreNorm):
    """y = x + f, where f = F(norm(x)). F also normalises the input of its last map: the heads, or the hidden features.

    A gain multiplies the initial value, output and feed-forward weights. With N encoder and M decoder layers it is
    √(ln(3M)·ln(2N)/3) in the encoder and √ln(3M) in the decoder. In a model of one stack with N layers it is √ln(2N).
    Cross-attention has neither gain nor inner normalisation, as in torchscale. Members: `norm`.
    """

    def __init__(self, features: int, *, norm: str, place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        layers, others = place.layers, place.other_layers
        if place.branch == "encoder_attn":
            self._inner_norms: Mapping[InnerNorm, str] = {}
            self._gain = 1.0
            return
        self._inner_norms = {"hidden": norm} if place.branch == "ffn" else {"heads": norm}
        if place.stack == "encoder" and others:
            self._gain = math.sqrt(math.log(3 * others) * math.log(2 * layers) / 3)
        else:
            self._gain = math.sqrt(math.log((3 if others or place.crosses else 2) * layers))

    @property
    def branch_gain(self) -> float:
        return self._gain

    @property
    def inner_norms(self) -> Mapping[InnerNorm, str]:
        return self._inner_norms
