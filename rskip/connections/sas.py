"""Self-adaptive scaling: gates weigh the input, the branch and their normalised sum at each position."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.gates import scaling_gate
from rskip.connections.norms import LayerNorm, build_norm, features_to
from rskip.connections.registry import register_connection
from rskip.connections.sas_function import SASFunction
from rskip.connections.spec import ConnectionSpec
from rskip.kernel_forms import GatedSum
from rskip.settings.errors import SettingError
from rskip.settings.paper import Paper


def _check(spec: ConnectionSpec) -> None:
    options = dict(spec.options)
    if options.get("norm_term") is False and (spec.norm != "ln" or "gamma" in options):
        pointless = "gamma=free" if "gamma" in options else f"+{spec.norm}"
        expected = f"{pointless} only with norm_term=true, since norm_term=false removes the normalised term"
        raise SettingError.of_value("connection", str(spec), expected, advice=f"leave {pointless} out")


@register_connection(
    "sas",
    formula="αx + βf + (1-α)(1-β) norm(x + f), α and β from gates over [x; f]",
    source="SAS paper, Eq. 4; gamma=free Eq. 3; gates Eq. 2; gate=single, norm_term=false Table 6; host=prenorm: ours",
    norms=("ln", "rms", "gn1", "bn"),
    default_norm="ln",
    closing_norm=lambda spec: spec.settings["host"] == "prenorm",
    check=_check,
    paper=Paper(
        title="Self-Adaptive Scaling Approach for Learnable Residual Structure",
        authors="Fenglin Liu, Meng Gao, Yuanxin Liu, Kai Lei",
        url="https://aclanthology.org/K19-1080",
        part="Eq. 4",
    ),
)
class SAS(Connection):
    """y = αx + βf + γ norm(x + f), where α, β and γ are gates with one value per position (SAS paper, Eq. 4).

    :param gate: "full": σ(tanh([x; f]W_f + b_f)W_ff + b_ff), Eq. 2. "single": σ([x; f]W + b).
    :param gamma: "tied": γ = (1-α)(1-β). "free": γ has its own gate, whose bias starts at 0.
    :param norm_term: whether to add the normalised term γ norm(x + f).
    :param alpha_bias: initial value of the last bias in α's gate.
    :param beta_bias: initial value of the last bias in β's gate.
    :param host: the block around Eq. 4, which the paper does not specify for Transformers. "postnorm": f = F(x).
        "prenorm" (sequences only): f = F(norm(x)), and one normalisation closes the stack, as in tensor2tensor since
        2018.

    Members: `alpha_gate`, `beta_gate`, `gamma_gate` (gamma=free), `norm` (unless norm_term is false), `branch_norm`
    (host=prenorm).
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        gate: Literal["full", "single"] = "full",
        gamma: Literal["tied", "free"] = "tied",
        norm_term: bool = True,
        alpha_bias: float = 0,
        beta_bias: float = 0,
        host: Literal["postnorm", "prenorm"] = "postnorm",
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.gate = gate
        self.gamma = gamma
        self.alpha_gate = scaling_gate(features, gate, bias=alpha_bias)
        self.beta_gate = scaling_gate(features, gate, bias=beta_bias)
        self.gamma_gate = scaling_gate(features, gate) if gamma == "free" else None
        self.norm = build_norm(norm, features, feature_dim) if norm_term else None
        self.branch_norm = build_norm(norm, features, feature_dim) if host == "prenorm" else None

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.branch_norm is None else self.branch_norm(x)

    def as_gates(self) -> GatedSum:
        return GatedSum(
            form="scaling", over="both", alpha=self.alpha_gate, beta=self.beta_gate, gamma=self.gamma_gate,
            norm=self.norm, branch_norm=self.branch_norm,
        )  # fmt: skip

    def factors(self, x: Tensor, f: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """α, β and γ, each with x's shape but one feature; γ is None without the normalised term."""
        both = torch.cat([x, f], dim=self.feature_dim).movedim(self.feature_dim, -1)  # (..., 2C)
        alpha = features_to(self.feature_dim, self.alpha_gate(both))
        beta = features_to(self.feature_dim, self.beta_gate(both))
        if self.norm is None:
            return alpha, beta, None
        if self.gamma_gate is None:
            return alpha, beta, (1 - alpha) * (1 - beta)
        return alpha, beta, features_to(self.feature_dim, self.gamma_gate(both))

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        if self._as_one_function(x, f):
            return self._combined(x, f)
        alpha, beta, gamma = self.factors(x, f)
        y = alpha * x + beta * f
        if self.norm is not None and gamma is not None:
            y = y + gamma * self.norm(x + f)
        return y

    def _as_one_function(self, x: Tensor, f: Tensor) -> bool:
        """Whether to use `SASFunction`: formula and types match, memory traffic dominates, and no hook is registered.

        It is not used under torch.compile, because the compiler fuses the formula into one kernel.
        """
        if x.device.type == "cpu" or torch.compiler.is_compiling():
            return False
        if x.dtype not in (torch.bfloat16, torch.float16) or x.dtype != f.dtype:
            return False
        if self.gate != "full" or self.gamma != "tied" or not isinstance(self.norm, LayerNorm):
            return False
        if self.norm.bias is None:
            return False
        modules = self.alpha_gate, self.beta_gate, self.norm
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        return self.feature_dim == -1 and self.norm.weight.dtype == x.dtype and not hooked

    def _combined(self, x: Tensor, f: Tensor) -> Tensor:
        norm, (alpha, beta) = self.norm, (dict(gate.named_parameters()) for gate in (self.alpha_gate, self.beta_gate))
        assert isinstance(norm, LayerNorm)
        names = "hidden.weight", "hidden.bias", "output.weight", "output.bias"
        gates = [torch.cat([alpha[name], beta[name]]) for name in names]
        return SASFunction.apply(x, f, *gates, norm.weight, norm.bias, norm.eps)
