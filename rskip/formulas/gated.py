"""Families with gates: SAS and Highway."""

from __future__ import annotations

from typing import Literal

from rskip.formulas.parameters import AnyNorm
from rskip.formulas.registry import register_connection
from rskip.formulas.terms import F, Formula, Gate, Norm, Settings, X


@register_connection("highway", source="Srivastava et al. 2015; SAS paper, Table 6; gate=shortcut: He et al. 2016b")
class Highway(Formula):
    """y = T ⊙ f + (1-T) ⊙ x, with a gate T.

    :param gate: transform: T = σ(xW + b), one factor per feature. single and full: SAS's gates over [x; f], one
        factor per position. shortcut: the transform gate on only the shortcut, y = f + (1-T) ⊙ x.
    :param bias: initial value of the gate's last bias. A negative value makes blocks start by passing x through.

    Members: `gate`.
    """

    def __init__(
        self, *, gate: Literal["transform", "shortcut", "single", "full"] = "transform", bias: float = -3
    ) -> None:
        scalar = gate in ("single", "full")
        t = Gate("gate", (X, F) if scalar else (X,), "T", scalar, hidden=gate == "full", bias=bias)
        self.y = (F if gate == "shortcut" else t * F) + (1 - t) * X


@register_connection(
    "sas",
    source="SAS paper, Eq. 4; gamma=free Eq. 3; gates Eq. 2; gate=single, norm_term=false Table 6; host=prenorm: ours",
)
class SAS(Formula):
    """y = αx + βf + γ norm(x + f), where α, β and γ are gates with one value per position (SAS paper, Eq. 4).

    :param gate: full: σ(tanh([x; f]W_f + b_f)W_ff + b_ff), Eq. 2. single: σ([x; f]W + b).
    :param gamma: tied: γ = (1-α)(1-β). free: γ has its own gate, whose bias starts at 0.
    :param norm_term: whether to add the normalised term γ norm(x + f).
    :param alpha_bias: initial value of the last bias in α's gate.
    :param beta_bias: initial value of the last bias in β's gate.
    :param host: the block around Eq. 4, which the paper does not specify for Transformers. postnorm: f = F(x). prenorm
        (sequences only): f = F(norm(x)), and one normalisation closes the stack, as in tensor2tensor since 2018.

    Members: `alpha_gate`, `beta_gate`, `gamma_gate` (gamma=free), `norm` (unless norm_term is false), `branch_norm`
    (host=prenorm).
    """

    closing_norm = ("host", "prenorm")

    def __init__(
        self,
        *,
        norm: AnyNorm = "ln",
        gate: Literal["full", "single"] = "full",
        gamma: Literal["tied", "free"] = "tied",
        norm_term: bool = True,
        alpha_bias: float = 0,
        beta_bias: float = 0,
        host: Literal["postnorm", "prenorm"] = "postnorm",
    ) -> None:
        def gated(name: str, symbol: str, bias: float = 0) -> Gate:
            return Gate(f"{name}_gate", (X, F), symbol, hidden=gate == "full", bias=bias)

        alpha, beta = gated("alpha", "α", alpha_bias), gated("beta", "β", beta_bias)
        self.reads = Norm("branch_norm", norm, X) if host == "prenorm" else X
        self.y = alpha * X + beta * F
        if norm_term:
            rest = gated("gamma", "γ") if gamma == "free" else (1 - alpha) * (1 - beta)
            self.y = self.y + rest * Norm("norm", norm, X + F)

    @classmethod
    def check(cls, settings: Settings) -> str | None:
        if settings.get("norm_term", True) or (settings["norm"] == "ln" and settings["gamma"] == "tied"):
            return None
        pointless = "gamma=free" if settings["gamma"] == "free" else f"+{settings['norm']}"
        return f"{pointless} only with norm_term=true, since norm_term=false removes the normalised term: leave it out"
