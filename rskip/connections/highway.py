"""Highway connections: a gate weighs the input against the branch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.gates import scaling_gate, transform_gate
from rskip.connections.norms import features_to
from rskip.connections.registry import register_connection
from rskip.kernel_forms import GatedSum
from rskip.settings.paper import Paper


@register_connection(
    "highway",
    formula="T ⊙ f + (1-T) ⊙ x, T = σ(xW + b)",
    source="Srivastava et al. 2015; SAS paper, Table 6; gate=shortcut: He et al. 2016b",
    paper=Paper(
        title="Highway Networks",
        authors="Rupesh Kumar Srivastava, Klaus Greff, Jürgen Schmidhuber",
        url="https://arxiv.org/abs/1505.00387",
    ),
)
class Highway(Connection):
    """y = T ⊙ f + (1-T) ⊙ x, with a gate T.

    :param gate: "transform": T = σ(xW + b), one factor per feature. "single" and "full": SAS's gates over [x; f], one
        factor per position. "shortcut": the transform gate on only the shortcut, y = f + (1-T) ⊙ x.
    :param bias: initial value of the gate's last bias. A negative value makes blocks start by passing x through.

    Members: `gate`.
    """

    def __init__(
        self,
        features: int,
        *,
        gate: Literal["transform", "shortcut", "single", "full"] = "transform",
        bias: float = -3,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.form = gate
        scalar = gate in ("single", "full")
        self.gate = scaling_gate(features, gate, bias=bias) if scalar else transform_gate(features, bias=bias)

    def as_gates(self) -> GatedSum:
        over: Literal["x", "both"] = "both" if self.form in ("single", "full") else "x"
        return GatedSum(form="shortcut" if self.form == "shortcut" else "highway", over=over, alpha=self.gate)

    def factor(self, x: Tensor, f: Tensor) -> Tensor:
        """T, with x's shape, or with one feature if the gate has one factor per position."""
        z = torch.cat([x, f], dim=self.feature_dim) if self.form in ("single", "full") else x
        return features_to(self.feature_dim, self.gate(z.movedim(self.feature_dim, -1)))

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        t = self.factor(x, f)
        if self.form == "shortcut":
            return f + (1 - t) * x
        return t * f + (1 - t) * x
