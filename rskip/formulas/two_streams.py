"""Families whose blocks pass on two streams: ResiDual, SiameseNorm and two lanes."""

from __future__ import annotations

import math
from typing import Annotated

from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Learned, Norm, Number, StackFormula, Symbol, X

R = Symbol("r")
Y = Symbol("y")
M = Symbol("m")


class ResidualDualStack(StackFormula):
    """Starts with r = x; the stack's output is x + norm(r). Members: `norm`."""

    streams = ("x", "r")
    wide = ("r",)

    def __init__(self, *, norm: str) -> None:
        self.leaves = X + Norm("norm", norm, R)


@register_connection("residual_dual", source="Xie et al. 2023, section 3")
class ResidualDual(Formula):
    """x ← norm(x + f), r ← r + f, where f = F(x). r is unbounded, so it is in float32 or better. Members: `norm`."""

    stack = ResidualDualStack

    def __init__(self, *, norm: TextNorm = "ln") -> None:
        self.becomes = {"x": Norm("norm", norm, X + F), "r": R + F}


class SiameseStack(StackFormula):
    """Starts with x = y = the stack's input; its output is norm(norm(x) + norm(y)).

    Members: `post_norm` (for x), `pre_norm` (for y), `norm`.
    """

    streams = ("x", "y")

    def __init__(self, *, norm: str) -> None:
        self.leaves = Norm("norm", norm, Norm("post_norm", norm, X) + Norm("pre_norm", norm, Y))


@register_connection("siamese", source="Li et al. 2026, its code for DeiT")
class Siamese(Formula):
    """x ← norm₁(x), f = F(norm₃(x + norm₂(y))), x ← x + sf, y ← y + f.

    s = 1/√b for b blocks up to the end of this layer: 2l in layer l of an encoder, as in the paper's code, and by
    the same rule 3l in a decoder. Members: `post_norm` (norm₁), `pre_norm` (norm₂), `norm` (norm₃).
    """

    stack = SiameseStack

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        scale = 1 / math.sqrt(place.layer * place.sublayers / place.layers)
        self.keeps = {"x": Norm("post_norm", norm, X)}
        self.reads = Norm("norm", norm, X + Norm("pre_norm", norm, Y))
        self.becomes = {"x": X + Number(scale, "s", "= 1/√(the blocks up to this layer's end)") * F, "y": Y + F}


class LanesStack(StackFormula):
    """Starts with x = y = m = the stack's input; its output is (x + y)/2 + bm, with b learned from -1/2.

    Members: `backout_weight` (b).
    """

    streams = ("x", "y", "m")

    def __init__(self, *, norm: str) -> None:
        self.leaves = 0.5 * X + 0.5 * Y + Learned("backout_weight", -0.5, size=1, symbol="b") * M


@register_connection(
    "lanes",
    source="modded-nanogpt's parallel residuals (pull request 230) and backout (140), without its embeddings' terms",
)
class Lanes(Formula):
    """x ← λx + vf, y ← λy + wf, where f = F(norm(x)) in attention and F(norm(y)) in feed-forward blocks; the stack
    gives (x + y)/2 + bm, where m is x after the first layer with two lanes.

    In the first layers y is x. λ starts at √1.1, v at 1, w at 3/2 after attention and 1 after feed-forward, b at -1/2.

    :param ratio: share of the layers, counted from the first, in which y is x. The last layer always has two lanes.

    Members: `norm`, `skip_weight` (λ), `branch_weight` (v), and with two lanes `lane_weight` (w).
    """

    stack = LanesStack
    closing_norm = True

    def __init__(self, *, norm: TextNorm = "ln", ratio: Annotated[float, Bounds(0, 1)] = 0.64, place: Place) -> None:
        single = min(place.first_layers(ratio), place.layers - 1)  # layers with one lane
        feeds, doubled = place.branch == "ffn", place.layer > single
        skip = Learned("skip_weight", math.sqrt(1.1), size=1, symbol="λ")
        x = skip * X + Learned("branch_weight", 1.0, size=1, symbol="v") * F
        y = skip * Y + Learned("lane_weight", 1.0 if feeds else 1.5, size=1) * F
        self.reads = Norm("norm", norm, Y if feeds and doubled else X)
        ends = place.layer == single + 1 and place.ends_layer
        self.becomes = {"x": x, "y": y if doubled else x, "m": x if ends else M}
