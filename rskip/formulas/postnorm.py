"""Families that normalise the sum of x and f, or have no normalisation: the rSkip paper's, and post-norm ones."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from rskip.formulas.parameters import AnyNorm, Bounds, Factor, Positive, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Learned, Mixture, Norm, Number, Settings, Term, X


@register_connection(
    "xskip",
    source="rSkip paper, Eq. 2 and 3; λ=β=1 is ResNet (He et al. 2016), with ln the post-norm Transformer",
)
class XSkip(Formula):
    """y = norm(λx + βf), where λ is `scale` and β is `branch_scale`.

    :param branch_scale: β.

    Members: `norm`, if the spec has one.
    """

    def __init__(
        self, *, scale: Annotated[float, Factor()], norm: AnyNorm | None, branch_scale: Positive = 1
    ) -> None:
        total = Number(scale, "λ") * X + Number(branch_scale, "β", "= branch_scale") * F
        self.y = total if norm is None else Norm("norm", norm, total)


@register_connection("rskip", source="rSkip paper, Eq. 4")
class RSkip(Formula):
    """y_1 = norm_1(x + f), y_k = norm_k(x + y_{k-1}), y = y_λ, where λ is `recursion`.

    Members: `norms.0` to `norms.<λ-1>`.
    """

    def __init__(self, *, recursion: Annotated[int, Factor()], norm: AnyNorm) -> None:
        self.y = F
        for number in range(recursion):
            self.y = Norm(f"norms.{number}", norm, X + self.y)


@register_connection("wskip", source="rSkip paper, section 4.3, Learning λ; rate and floor are this project's")
class WSkip(Formula):
    """y = norm(w ⊙ x + f), with one learned w per feature.

    Let p be `skip_weight`, p₀ its initial value and c `rate`. Then w = p₀ + c(p - p₀), so w = p with c = 1. With a
    `floor` above 0, w = floor + softplus(p₀ + c(p - p₀)).

    :param init: initial w.
    :param rate: c. Adam moves w at c times the learning rate, and SGD at c² times.
    :param floor: lower bound of w, if above 0.

    Members: `skip_weight` (C), `norm`.
    """

    def __init__(
        self, *, norm: AnyNorm, init: float = 1, rate: Positive = 1, floor: Annotated[float, Bounds(ge=0)] = 0
    ) -> None:
        first = softplus_inverse(init - floor) if floor else float(init)
        weight = Learned("skip_weight", first, rate=rate, bound="floor" if floor else "none", floor=floor)
        self.y = Norm("norm", norm, weight * X + F)

    @classmethod
    def check(cls, settings: Settings) -> str | None:
        if settings["floor"] and settings["init"] <= settings["floor"]:
            return f"init greater than floor, not init={settings['init']} with floor={settings['floor']}"
        return None


@register_connection("rezero", source="Bachlechner et al. 2020; with init the same as SkipInit, De and Smith 2020")
class ReZero(Formula):
    """y = x + αf, where α is one learned number. Members: `alpha` (1).

    :param init: initial α.
    """

    def __init__(self, *, init: float = 0) -> None:
        self.y = X + Learned("alpha", init, 1, "α") * F


def depth_scale(place: Place) -> Number:
    """DeepNorm's α (Table 1): 0.81(N⁴M)^(1/16) in an encoder of N layers with a decoder of M layers.

    In any other stack it is the fourth root of the number of blocks: (3M)^(1/4) in a decoder of M layers with an
    encoder, (2N)^(1/4) in a model of one stack with N layers.
    """
    if place.stack == "encoder" and place.other_layers:
        value = 0.81 * (place.layers**4 * place.other_layers) ** 0.0625
    else:
        value = place.sublayers**0.25
    return Number(value, "α", "by depth")


@register_connection("deepnorm", source="Wang et al. 2022, Table 1")
class DeepNorm(Formula):
    """y = norm(αx + f). A gain multiplies the initial value, output and feed-forward weights.

    With N encoder and M decoder layers (Wang et al. 2022, Table 1):

    - encoder: α = 0.81(N⁴M)^(1/16), gain 0.87(N⁴M)^(-1/16); torchscale's code has 1.15 instead of 0.87.
    - decoder: α = (3M)^(1/4), gain (12M)^(-1/4).
    - a model of one stack with N layers: α = (2N)^(1/4), gain (8N)^(-1/4).

    Members: `norm`.
    """

    text_only = True

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        layers, others = place.layers, place.other_layers
        if place.stack == "encoder" and others:
            self.branch_gain = 0.87 * (layers**4 * others) ** -0.0625
        else:
            self.branch_gain = ((12 if others or place.crosses else 8) * layers) ** -0.25
        self.y = Norm("norm", norm, depth_scale(place) * X + F)


@register_connection("admin", source="Liu et al. 2020, the pass as in its code (LiyuanLucasLiu/Transformer-Clinic)")
class Admin(Formula):
    """y = norm(ω ⊙ x + f), with one learned ω per feature, which is 1 until a pass over data.

    A pass over data (`admin_profiling`) sets ω₁ = 1 and ω²_{i+1} = Var(ω_i x_i) + Var(f_i).
    Members: `skip_weight` (C), `norm`.
    """

    needs_profile = True

    def __init__(self, *, norm: TextNorm = "ln") -> None:
        self.y = Norm("norm", norm, Learned("skip_weight", symbol="ω") * X + F)


@register_connection("keel", source="Chen and Wei 2026")
class Keel(Formula):
    """y = norm₂(αx + f), where f = F(norm₁(x)) and α is the number of blocks in the stack.

    Members: `norm` (norm₁), `output_norm` (norm₂).
    """

    text_only = True

    def __init__(self, *, norm: TextNorm = "ln", place: Place) -> None:
        self.reads = Norm("norm", norm, X)
        scale = Number(place.sublayers, "α", "the number of blocks in the stack")
        self.y = Norm("output_norm", norm, scale * X + F)


_LEAST = 1.05  # minimum initial value of a learned λ, which is always above 1
_FAVOURED = 2.0  # initial logit of y₂ in a mixture of y₁ to y₃; the other logits start at 0


@register_connection("askip", source="this project; λ by depth is DeepNorm's α, Wang et al. 2022, Table 1")
class ASkip(Formula):
    """An adaptive λ. α is DeepNorm's factor for this depth (`depth_scale`).

    - learned: y = norm(λx + f) with λ = 1 + softplus(b + c·a). a is learned and starts at 0. b is fixed such that λ
      starts at α, or at 1.05 if α is less.
    - depth: y = norm(αx + f).
    - recursive: y = norm₂(x + norm₁(x + f)), which is 2rSkip with norm₁'s gain starting at 1/α instead of 1.
    - mixture: y = Σ_k s_k y_k for k = 1 to 3, where y_k is rSkip's k-th recursion and s = softmax(m). m is learned
      and starts at (0, 2, 0).

    :param form: how λ is found.
    :param rate: c, a factor of Adam's learning rate, in the learned form.

    Members: `norm` (learned, depth), `offset` (a, of shape (1); learned), `norms` (recursive, mixture), `logits`
    (m, of shape (3); mixture).
    """

    only_with = {"rate": ("form", "learned")}

    def __init__(
        self,
        *,
        norm: AnyNorm,
        form: Literal["learned", "depth", "recursive", "mixture"] = "learned",
        rate: Positive = 0.01,
        place: Place,
    ) -> None:
        depth = depth_scale(place)
        if form == "depth":
            self.y = Norm("norm", norm, depth * X + F)
        elif form == "learned":
            centre = softplus_inverse(max(depth.value, _LEAST) - 1)
            scale = Learned("offset", 0.0, 1, "λ", rate=rate, centre=centre, bound="floor", floor=1.0)
            self.y = Norm("norm", norm, scale * X + F)
        else:
            ys: list[Term] = [F]
            for number in range(2 if form == "recursive" else 3):
                gain = 1 / depth.value if form == "recursive" and not number else 1.0
                ys.append(Norm(f"norms.{number}", norm, X + ys[-1], gain))
            self.y = ys[-1] if form == "recursive" else Mixture("logits", (0.0, _FAVOURED, 0.0), tuple(ys[1:]))


def softplus_inverse(y: float) -> float:
    """The z that solves log(1 + exp(z)) = y, for y > 0."""
    return y + math.log(-math.expm1(-y))
