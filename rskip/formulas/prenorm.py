"""Families whose branch reads a normalised x, and whose stack a normalisation closes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Learned, Map, Norm, Number, StackFormula, X
from rskip.settings.paper import Paper


@register_connection(
    "prenorm",
    source="the usual pre-norm Transformer (He et al. 2016b; Xiong et al. 2020)",
    paper=Paper(
        title="On Layer Normalization in the Transformer Architecture",
        authors="Ruibin Xiong et al.",
        url="https://arxiv.org/abs/2002.04745",
    ),
)
class PreNorm(Formula):
    """y = x + f, where f = F(norm(x)). Members: `norm`."""

    closing_norm = True

    def __init__(self, *, norm: TextNorm) -> None:
        self.reads = Norm("norm", norm, X)
        self.y = X + F


@register_connection(
    "layerscale",
    source="Touvron et al. 2021, Eq. 4 and section 2",
    paper=Paper(
        title="Going Deeper with Image Transformers",
        authors="Hugo Touvron, Matthieu Cord, Alexandre Sablayrolles, Gabriel Synnaeve, Hervé Jégou",
        url="https://arxiv.org/abs/2103.17239",
        part="Eq. 4",
    ),
)
class LayerScale(Formula):
    """y = x + γ ⊙ f, with one γ per feature. With a normalisation (sequences only) f = F(norm(x)).

    γ starts at `init`. If that is 0, γ starts at 0.1 in stacks of up to 18 layers, 1e-5 up to 24, and 1e-6 above.
    Members: `branch_weight` (C), `norm` (if given).
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm | None, init: float = 0, place: Place) -> None:
        by_depth = 0.1 if place.layers <= 18 else 1e-5 if place.layers <= 24 else 1e-6
        self.reads = X if norm is None else Norm("norm", norm, X)
        self.y = X + Learned("branch_weight", init or by_depth, symbol="γ") * F


@register_connection(
    "laurel",
    source="Menghani et al. 2025, LAuReL-LR and LAuReL-RW; initial values: ours",
    paper=Paper(
        title="LAuReL: Learned Augmented Residual Layer",
        authors="Gaurav Menghani, Ravi Kumar, Sanjiv Kumar",
        url="https://arxiv.org/abs/2411.07501",
    ),
)
class Laurel(Formula):
    """y = x + BAx + f with form="lr", or y = αf + βx with form="rw".

    A has `rank` rows; α and β are one number each per block. With a normalisation (sequences only) f = F(norm(x)).
    α and β are learned as they are, or, with `bound`, as the softmax of two learned numbers or as the sigmoid of each.
    A block starts as x + f: B = 0, or α = β = 1. With `bound` it starts as (x + f)/2.
    Members: `down` (A) and `up` (B), or `branch_scale` (α) and `skip_scale` (β), each (1), before softmax or sigmoid;
    `norm` (if given).
    """

    closing_norm = True
    only_with = {"rank": ("form", "lr"), "bound": ("form", "rw")}

    def __init__(
        self,
        *,
        norm: TextNorm | None,
        form: Literal["lr", "rw"] = "lr",
        rank: Annotated[int, Bounds(1, 4096)] = 16,
        bound: Literal["none", "softmax", "sigmoid"] = "none",
    ) -> None:
        self.reads = X if norm is None else Norm("norm", norm, X)
        if form == "lr":
            self.y = X + Map("up", Map("down", X, rank), zero=True) + F
            return
        first = 1.0 if bound == "none" else 0.0
        alpha = Learned("branch_scale", first, 1, "α", bound=bound, against="skip_scale")
        beta = Learned("skip_scale", first, 1, "β", bound=bound, against="branch_scale")
        self.y = alpha * F + beta * X


@register_connection(
    "lns",
    source="Sun et al. 2025, LayerNorm Scaling",
    paper=Paper(
        title="The Curse of Depth in Large Language Models",
        authors="Wenfang Sun et al.",
        url="https://arxiv.org/abs/2502.05795",
    ),
)
class LayerNormScaling(Formula):
    """y = x + f, where f = F(norm(x)/√l) in the stack's l-th layer, counted from 1. Members: `norm`."""

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        self.reads = Number(1 / math.sqrt(place.layer), "s", "= 1/√l in layer l") * Norm("norm", norm, X)
        self.y = X + F


@register_connection(
    "mixln",
    formula="norm(x + f) in the first layers, x + F(norm(x)) in the others, and one normalisation closes the stack",
    source="Li et al. 2025",
    paper=Paper(
        title="Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN",
        authors="Pengxiang Li, Lu Yin, Shiwei Liu",
        url="https://arxiv.org/abs/2412.13795",
    ),
)
class MixLN(Formula):
    """Post-norm, y = norm(x + f), in the first ⌊ratio·L⌋ of L layers; pre-norm, y = x + F(norm(x)), in the rest.

    Members: `norm`.
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", ratio: Annotated[float, Bounds(0, 1)] = 0.25, place: Place) -> None:
        if place.layer <= math.floor(ratio * place.layers + 1e-9):  # 0.58 · 50 is 28.999... in floats
            self.y = Norm("norm", norm, X + F)
        else:
            self.reads, self.y = Norm("norm", norm, X), X + F


@register_connection(
    "sandwich",
    source="Ding et al. 2021, section 2.4",
    paper=Paper(
        title="CogView: Mastering Text-to-Image Generation via Transformers",
        authors="Ming Ding et al.",
        url="https://arxiv.org/abs/2105.13290",
        part="section 2.4",
    ),
)
class Sandwich(Formula):
    """y = x + norm₂(f), where f = F(norm₁(x)). Members: `norm` (norm₁), `branch_norm` (norm₂)."""

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln") -> None:
        self.reads = Norm("norm", norm, X)
        self.y = X + Norm("branch_norm", norm, F)


class PeriLNStack(StackFormula):
    """Normalises the stack's input. Members: `norm`."""

    def __init__(self, *, norm: str) -> None:
        self.enters = Norm("norm", norm, X)


@register_connection(
    "periln",
    source="Kim et al. 2025, section 3",
    paper=Paper(
        title="Peri-LN: Revisiting Normalization Layer in the Transformer Architecture",
        authors="Jeonghoon Kim et al.",
        url="https://arxiv.org/abs/2502.02732",
        part="section 3",
    ),
)
class PeriLN(Sandwich):
    """y = x + norm₂(f), where f = F(norm₁(x)), in a stack whose input is normalised too. Members: as in Sandwich."""

    stack = PeriLNStack


@register_connection(
    "subln",
    formula="x + F(norm(x)), F normalised before its last map too, and one normalisation closes the stack",
    source="Wang et al. 2023, Magneto",
    paper=Paper(
        title="Magneto: A Foundation Transformer",
        authors="Hongyu Wang, Shuming Ma, Shaohan Huang, Li Dong, Wenhui Wang et al.",
        url="https://arxiv.org/abs/2210.06423",
    ),
)
class SubLN(Formula):
    """y = x + f, where f = F(norm(x)). F also normalises the input of its last map: the heads, or the hidden features.

    A gain multiplies the initial value, output and feed-forward weights. With N encoder and M decoder layers it is
    √(ln(3M)·ln(2N)/3) in the encoder and √ln(3M) in the decoder. In a model of one stack with N layers it is √ln(2N).
    Cross-attention has neither gain nor inner normalisation, as in torchscale. Members: `norm`.
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        self.reads, self.y = Norm("norm", norm, X), X + F
        layers, others = place.layers, place.other_layers
        if place.branch == "encoder_attn":
            return
        self.inner_norms = {"hidden": norm} if place.branch == "ffn" else {"heads": norm}
        if place.stack == "encoder" and others:
            self.branch_gain = math.sqrt(math.log(3 * others) * math.log(2 * layers) / 3)
        else:
            self.branch_gain = math.sqrt(math.log((3 if others or place.crosses else 2) * layers))


@register_connection(
    "normformer",
    formula="x + F(norm(x)), F normalised after attention and before its last map too, heads scaled, and one "
    "normalisation closes the stack; with res_scale w ⊙ x in a feed-forward block",
    source="Shleifer et al. 2021, section 2",
    paper=Paper(
        title="NormFormer: Improved Transformer Pretraining with Extra Normalization",
        authors="Sam Shleifer, Jason Weston, Myle Ott",
        url="https://arxiv.org/abs/2110.09456",
        part="section 2",
    ),
)
class NormFormer(Formula):
    """y = x + f, where f = F(norm(x)). With `res_scale`, y = w ⊙ x + f in feed-forward blocks; w is learned from 1.

    Self-attention multiplies each head's output by a learned factor and normalises its own output. The feed-forward
    branch normalises its hidden features. Cross-attention is a plain pre-norm block, as in fairseq. Heads are scaled
    before the output map, as in the paper; fairseq 0.12.2 scales them after it. Members: `norm`, `skip_weight` (C).
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", res_scale: bool = False, place: Place) -> None:
        self.reads, self.y = Norm("norm", norm, X), X + F
        self.scales_heads = place.branch == "self_attn"
        if place.branch == "self_attn":
            self.inner_norms = {"output": norm}
        elif place.branch == "ffn":
            self.inner_norms = {"hidden": norm}
            if res_scale:
                self.y = Learned("skip_weight") * X + F


@register_connection(
    "hybridnorm",
    formula="x + F(x), attention with normalised queries, keys and values; n + F(n), n = norm(x), in a feed-forward "
    "block; one normalisation closes the stack",
    source="Zhuo et al. 2025, section 3; its HybridNorm* is first=prenorm",
    paper=Paper(
        title="HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization",
        authors="Zhijian Zhuo, Yutao Zeng, Ya Wang, Sijun Zhang, Jian Yang, Xiaoqing Li, Xun Zhou, Jinwen Ma",
        url="https://arxiv.org/abs/2503.04598",
        part="section 3",
    ),
)
class HybridNorm(Formula):
    """y = x + f. The block before a feed-forward block returns norm(x + f), which is x and F's input in the next one.

    Every attention, including cross-attention, normalises the queries, keys and values of each head. With
    `first=prenorm` the blocks of the stack's first layer are x + F(norm(x)). Members: `norm`, in blocks with one.
    """

    closing_norm = True
    text_only = True

    def __init__(
        self, *, norm: TextNorm = "ln", first: Literal["hybrid", "prenorm"] = "hybrid", place: Place
    ) -> None:
        self.y = X + F
        if first == "prenorm" and place.layer == 1:
            self.reads = Norm("norm", norm, X)
        elif place.precedes_ffn:
            self.y = Norm("norm", norm, self.y)
        if place.branch != "ffn":
            self.inner_norms = dict.fromkeys(("query", "key", "value"), norm)
