"""The rSkip paper's connections: the input is multiplied by a factor (xskip, wskip) or added several times (rskip)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.options import Bounds, Positive
from rskip.connections.registry import Factor, Fold, register_connection
from rskip.connections.spec import ConnectionSpec
from rskip.kernel_forms import NormalisedSum
from rskip.settings.errors import SettingError
from rskip.settings.paper import Paper

PAPER = Paper(
    title="Rethinking Skip Connection with Layer Normalization in Transformers and ResNets",
    authors="Fenglin Liu, Xuancheng Ren, Zhiyuan Zhang, Xu Sun, Yuexian Zou",
    url="https://arxiv.org/abs/2105.07205",
)


def _fold_xskip(spec: ConnectionSpec) -> Fold | None:
    """LN(λx + βf) = LN(x + (β/λ)f); likewise RMS and gn1, but not bn, whose running statistics depend on the scale."""
    settings = spec.settings
    factor = settings["branch_scale"] / settings["scale"]
    return Fold(f"1xskip+{spec.norm}", factor) if spec.norm in ("ln", "rms", "gn1") else None


def _fold_rskip(spec: ConnectionSpec) -> Fold | None:
    return Fold(f"1xskip+{spec.norm}", renamed={"norms.0": "norm"}) if spec.factor == 1 else None


@register_connection(
    "xskip",
    formula="norm(λx + βf), β = branch_scale",
    source="rSkip paper, Eq. 2 and 3; λ=β=1 is ResNet (He et al. 2016), with ln the post-norm Transformer",
    factor=Factor("scale"),
    norms=(None, "ln", "rms", "gn1", "bn"),
    paper=replace(PAPER, part="Eq. 2 and 3"),
    fold=_fold_xskip,
)
class XSkip(Connection):
    """y = norm(λx + βf), where λ is `scale` and β is `branch_scale`. Members: `norm`, which may be None."""

    def __init__(
        self, features: int, *, scale: float, norm: str | None, branch_scale: Positive = 1, feature_dim: int = -1
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.scale = scale
        self.branch_scale = branch_scale
        self.norm = None if norm is None else build_norm(norm, features, feature_dim)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        if self.scale == 1:
            z = torch.add(x, f, alpha=self.branch_scale)
        else:
            z = torch.add(f if self.branch_scale == 1 else self.branch_scale * f, x, alpha=self.scale)
        return z if self.norm is None else self.norm(z)

    def as_norms(self) -> NormalisedSum:
        norms = () if self.norm is None else (self.norm,)
        return NormalisedSum(norms=norms, scale=self.scale, branch_scale=self.branch_scale)


@register_connection(
    "rskip",
    formula="y_k = norm_k(x + y_{k-1}) for k = 1..λ, y_0 = f, y = y_λ",
    source="rSkip paper, Eq. 4",
    factor=Factor("recursion", integer=True),
    norms=("ln", "rms", "gn1", "bn"),
    paper=replace(PAPER, part="Eq. 4"),
    fold=_fold_rskip,
)
class RSkip(Connection):
    """y_1 = norm_1(x + f), y_k = norm_k(x + y_{k-1}), y = y_λ, where λ is `recursion`.

    Members: `norms.0` to `norms.<λ-1>`.
    """

    def __init__(self, features: int, *, recursion: int, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.recursion = recursion
        self.norms = nn.ModuleList(build_norm(norm, features, feature_dim) for _ in range(recursion))

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        y = f
        for norm in self.norms:
            y = norm(x + y)
        return y

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(norms=tuple(self.norms))


def _check_wskip(spec: ConnectionSpec) -> None:
    settings = spec.settings
    if settings["floor"] and settings["init"] <= settings["floor"]:
        expected = f"init greater than floor, not init={settings['init']} with floor={settings['floor']}"
        raise SettingError.of_value("connection", str(spec), expected)


@register_connection(
    "wskip",
    formula="norm(w ⊙ x + f), w learned",
    source="rSkip paper, section 4.3, Learning λ; rate and floor are this project's",
    norms=("ln", "rms", "gn1", "bn"),
    paper=replace(PAPER, part="section 4.3"),
    check=_check_wskip,
)
class WSkip(Connection):
    """y = norm(w ⊙ x + f). w has one value per feature and starts at `init`. Members: `skip_weight` (C), `norm`.

    Let p be `skip_weight`, p₀ its initial value and c `rate`. Then w = p₀ + c(p - p₀), so w = p with c = 1. Adam moves
    w at c times the learning rate, and SGD at c² times. With a `floor` above 0, w = floor + softplus(p₀ + c(p - p₀)).
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        init: float = 1,
        rate: Positive = 1,
        floor: Annotated[float, Bounds(ge=0)] = 0,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.init = init
        self.rate = rate
        self.floor = floor
        self._start = softplus_inverse(init - floor) if floor else float(init)
        self.skip_weight = nn.Parameter(torch.full((features,), self._start))
        self.norm = build_norm(norm, features, feature_dim)

    def _initialise(self) -> None:
        nn.init.constant_(self.skip_weight, self._start)

    @property
    def weight(self) -> Tensor:
        """w (C)."""
        weight: Tensor = self.skip_weight
        if self.rate != 1:
            weight = self._start + self.rate * (weight - self._start)
        return self.floor + functional.softplus(weight) if self.floor else weight

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        return self.norm(torch.addcmul(f, self.of_features(self.weight, x), x))

    def as_norms(self) -> NormalisedSum:
        return NormalisedSum(norms=(self.norm,), scale=self.weight)


def softplus_inverse(y: float) -> float:
    """The z that solves log(1 + exp(z)) = y, for y > 0."""
    return y + math.log(-math.expm1(-y))
