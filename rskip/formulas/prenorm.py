"""Families whose branch reads a normalised x, and whose stack a normalisation closes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Learned, Map, Norm, Number, StackFormula, X


@register_connection("prenorm", source="the usual pre-norm Transformer (He et al. 2016b; Xiong et al. 2020)")
class PreNorm(Formula):
    """y = x + f, where f = F(norm(x)). Members: `norm`."""

    closing_norm = True

    def __init__(self, *, norm: TextNorm) -> None:
        self.reads = Norm("norm", norm, X)
        self.y = X + F


@register_connection("layerscale", source="Touvron et al. 2021, Eq. 4 and section 2")
class LayerScale(Formula):
    """y = x + γ ⊙ f, with one learned γ per feature. With a normalisation (sequences only) f = F(norm(x)).

    :param init: initial γ. 0 means by depth: 0.1 in stacks of up to 18 layers, 1e-5 up to 24, and 1e-6 above.

    Members: `branch_weight` (C), `norm` (if given).
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm | None, init: float = 0, place: Place) -> None:
        by_depth = 0.1 if place.layers <= 18 else 1e-5 if place.layers <= 24 else 1e-6
        self.reads = X if norm is None else Norm("norm", norm, X)
        self.y = X + Learned("branch_weight", init or by_depth, symbol="γ") * F


@register_connection("laurel", source="Menghani et al. 2025, LAuReL-LR and LAuReL-RW; initial values: ours")
class Laurel(Formula):
    """y = x + BAx + f with form=lr, or y = αf + βx with form=rw. With a normalisation (sequences only) f = F(norm(x)).

    α and β are one learned number each per block. A block starts as x + f: B = 0, or α = β = 1. With `bound` it starts
    as (x + f)/2.

    :param form: lr: a low-rank map of x is added. rw: x and f have learned factors.
    :param rank: number of A's rows.
    :param bound: α and β are the softmax of two learned numbers or the sigmoid of each, with form=rw.

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


@register_connection("lns", source="Sun et al. 2025, LayerNorm Scaling")
class LayerNormScaling(Formula):
    """y = x + f, where f = F(norm(x)/√l) in the stack's l-th layer, counted from 1. Members: `norm`."""

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        self.reads = Number(1 / math.sqrt(place.layer), "s", "= 1/√l in layer l") * Norm("norm", norm, X)
        self.y = X + F


@register_connection("mixln", source="Li et al. 2025")
class MixLN(Formula):
    """y = norm(x + f) in the first ⌊ratio·L⌋ of L layers, y = x + F(norm(x)) in the others.

    :param ratio: fraction of the layers that are post-norm.

    Members: `norm`.
    """

    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", ratio: Annotated[float, Bounds(0, 1)] = 0.25, place: Place) -> None:
        if place.layer <= place.first_layers(ratio):
            self.y = Norm("norm", norm, X + F)
        else:
            self.reads, self.y = Norm("norm", norm, X), X + F


@register_connection("sandwich", source="Ding et al. 2021, section 2.4")
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


@register_connection("periln", source="Kim et al. 2025, section 3")
class PeriLN(Sandwich):
    """y = x + norm₂(f), where f = F(norm₁(x)), in a stack whose input is normalised too. Members: as in Sandwich."""

    stack = PeriLNStack


@register_connection("subln", source="Wang et al. 2023, Magneto")
class SubLN(Formula):
    """y = x + F(norm(x)), where F also normalises the input of its last map: the heads, or the hidden features.

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


@register_connection("normformer", source="Shleifer et al. 2021, section 2")
class NormFormer(Formula):
    """y = x + F(norm(x)), where self-attention scales each head and normalises its output, and a feed-forward branch
    normalises its hidden features.

    Cross-attention is a plain pre-norm block, as in fairseq. Each head's factor is learned from 1. It multiplies the
    head before the output map, as in the paper; fairseq 0.12.2 scales after it.

    :param res_scale: y = w ⊙ x + F(norm(x)) in feed-forward blocks; w is learned from 1.

    Members: `norm`, `skip_weight` (w, C).
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


@register_connection("hybridnorm", source="Zhuo et al. 2025, section 3; its HybridNorm* is first=prenorm")
class HybridNorm(Formula):
    """y = x + F(x), where attention normalises the queries, keys and values of each head; in a feed-forward block
    y = n + F(n) with n = norm(x).

    n is computed by the block before the feed-forward block, which returns it. Cross-attention is an attention too.

    :param first: blocks of the stack's first layer; prenorm: x + F(norm(x)).

    Members: `norm`, in blocks with one.
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
