"""Deep delta learning: each block rewrites x along the direction of its branch's output."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from rskip.connections.connection import NormalisedInput
from rskip.connections.linear import LinearMap
from rskip.connections.norms import at_least_float32
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.registry import register_connection
from rskip.kernel_forms import GatedSum

EPS = 1e-5  # the code's value: 1e-10/C is added to the mean square of f
HIGHEST = 4  # v's upper bound in the code


@register_connection(
    "ddl",
    source="Zhang et al. 2026, one value per position, as in its code (yifanzhang-pro/deep-delta-learning, DDL-vdim1)",
)
class DeepDelta(NormalisedInput):
    """y = x + β(v - k·x)k with k = f/‖f‖, f = F(norm(x)), β = 2σ(w·norm(x) + b), v = 4σ(u·x + c).

    β and v are one number per position, in float32 or better. So y has v as its part along k for β = 1, and x's part
    for β = 0. c starts at 0.

    :param init: initial 2σ(b), which is β without the part that depends on the data.

    Members: `norm`, `step` (w, b), `target` (u, c).
    """

    closing_norm = True

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        init: Annotated[float, Bounds(1e-6, 2 - 1e-6)] = 1,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        bias = math.log(init / (2 - init))  # 2σ(bias) = init
        self.step = LinearMap(features, 1, first_weight=nn.init.xavier_uniform_, first_bias=bias)
        self.target = LinearMap(features, 1, first_weight=nn.init.xavier_uniform_, first_bias=0)
        self.reset_parameters()

    def kernel_form(self) -> GatedSum:
        return GatedSum(form="delta", alpha=self.step, beta=self.target, branch_norm=self.norm)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        beta = 2 * torch.sigmoid(at_least_float32(self.step(self.branch_input(x))))
        target = HIGHEST * torch.sigmoid(at_least_float32(self.target(x)))
        output = at_least_float32(f)
        k = output * torch.rsqrt(output.square().sum(-1, keepdim=True) + EPS**2)
        along = (k * x).sum(-1, keepdim=True)
        return torch.addcmul(x, beta * (target - along), k)
