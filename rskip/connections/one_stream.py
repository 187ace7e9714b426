"""Families of one stream that are not sums of terms: GPAS, orthogonal updates, deep delta learning and nGPT."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import Connection
from rskip.connections.linear import LinearMap
from rskip.connections.norms import EPS, at_least_float32, build_norm, divided_by_rms
from rskip.formulas.parameters import Bounds, Positive, TextNorm
from rskip.formulas.registry import register_connection
from rskip.kernel_forms import GatedSum, NormalisedSum


class NormalisedInput(Connection):
    """Base class of connections with f = F(norm(x)), or F(x) without a norm. Members: `norm` (if given)."""

    closing_norm = True

    def __init__(self, features: int, *, norm: str | None, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def branch_input(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


@register_connection(
    "gpas", source="Chen et al. 2025, Pre + GPAS, as in its code (dandingsky/GPAS), with one g per block"
)
class GPAS(NormalisedInput):
    """y = z - silu(g)·sg(z) with z = x + F(norm(x)); sg passes no gradient.

    So y is (1 - silu(g))·z, and y's gradient in z is the identity. g is learned and starts at 0, where y = z.
    Members: `norm`, `damping` (g, of shape (1)).
    """

    def __init__(self, features: int, *, norm: TextNorm = "ln", feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)
        self.damping = self.learned("damping", 0.0, 1)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        z = x + f
        return torch.addcmul(z, self._removed.to(z.dtype), z.detach(), value=-1)

    @property
    def _removed(self) -> Tensor:
        """silu(g)."""
        return functional.silu(at_least_float32(self.damping))

    def kernel_form(self) -> NormalisedSum:
        return NormalisedSum(scale=self.kept, branch_scale=self.kept, branch_norm=self.norm)

    @property
    def kept(self) -> Tensor:
        """1 - silu(g), the factor of x and f in y, which their gradients lack."""
        return 1 - self._removed


@register_connection(
    "orthogonal",
    source="Oh et al. 2025, the feature-wise form, as in its code (BootsofLagrangian/ortho-residual)",
)
class Orthogonal(NormalisedInput):
    """y = x + f - (x·f/(x·x + 1e-6))x, where x·f is over the features. With a normalisation f = F(norm(x)).

    The factor is one number per position, in float32 or better. Members: `norm` (if given; sequences only).
    """

    def __init__(self, features: int, *, norm: TextNorm | None, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, feature_dim=feature_dim)

    def kernel_form(self) -> GatedSum:
        return GatedSum(form="orthogonal", branch_norm=self.norm)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        given, output = at_least_float32(x), at_least_float32(f)
        share = (given * output).sum(self.feature_dim, keepdim=True)
        share = share / (given.square().sum(self.feature_dim, keepdim=True) + 1e-6)
        return x + f - share.to(x.dtype) * x


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
        target = 4 * torch.sigmoid(at_least_float32(self.target(x)))
        output = at_least_float32(f)
        k = output * torch.rsqrt(output.square().sum(-1, keepdim=True) + 1e-5**2)  # as in the code
        along = (k * x).sum(-1, keepdim=True)
        return torch.addcmul(x, beta * (target - along), k)


@register_connection(
    "ngpt",
    source="Loshchilov et al. 2024, only the residual update, as in the code (NVIDIA/ngpt), vectors √C times as long",
)
class NGPT(Connection):
    """y = n(h + abs(α) ⊙ (n(f) - h)) with f = F(h), h = n(x), where n divides by the root mean square.

    α has one learned value per feature. It is p·init·√C, where p starts at 1/√C, as in nGPT. nGPT's n has norm 1
    instead of root mean square 1: its y is ours divided by √C.

    :param init: initial α.

    Members: `step_weight` (p, C).
    """

    text_only = True

    def __init__(self, features: int, *, init: Positive = 0.05, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.init, self.eps = init, EPS
        self.step_weight = self.learned("step_weight", features**-0.5, features)

    def branch_input(self, x: Tensor) -> Tensor:
        return divided_by_rms(x, self.eps).to(x.dtype)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        h, step = divided_by_rms(x, self.eps), divided_by_rms(f, self.eps)
        alpha = at_least_float32(self.step_weight).abs() * (self.init * self.features**0.5)
        return divided_by_rms(h + alpha * (step - h), self.eps)
