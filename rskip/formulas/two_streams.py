"""Families whose blocks pass on two streams: ResiDual and SiameseNorm."""

from __future__ import annotations

import math

from rskip.formulas.parameters import TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Norm, Number, StackFormula, Symbol, X

R = Symbol("r")
Y = Symbol("y")


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
