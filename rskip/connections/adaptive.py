"""ASkip: a λ that is initialised from the model's depth and may be learned. It was introduced by this project."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import Connection
from rskip.connections.deepnorm import depth_scale
from rskip.connections.first_gain import FirstGain
from rskip.connections.initial_values import fill, one_hot
from rskip.connections.norms import Normalisation, at_least_float32, build_norm
from rskip.connections.options import Positive
from rskip.connections.place import Place
from rskip.connections.registry import Fold, register_connection
from rskip.connections.rskip import softplus_inverse
from rskip.connections.spec import ConnectionSpec
from rskip.kernel_forms import NormalisedSum

_LEAST = 1.05  # minimum initial value of a learned λ, which is always above 1
_FAVOURED = 2.0  # initial logit of y₂ in a mixture of y₁ to y₃; the other logits start at 0


def _fold(spec: ConnectionSpec) -> Fold | None:
    def factor(connection: Connection) -> float:
        assert isinstance(connection, ASkip)
        return 1 / torch.as_tensor(connection.scale).item()

    folds = spec.settings["form"] in ("learned", "depth") and spec.norm != "bn"
    return Fold(f"1xskip+{spec.norm}", factor) if folds else None


@register_connection(
    "askip",
    formula="norm(λx + f), λ = 1 + softplus(b + c·a), a learned, λ by depth at first",
    source="this project; λ by depth is DeepNorm's α, Wang et al. 2022, Table 1",
    norms=("ln", "rms", "gn1", "bn"),
    only_with={"rate": ("form", "learned")},
    fold=_fold,
)
class ASkip(Connection):
    """An adaptive λ. `form` selects the formula; α is DeepNorm's factor for this depth (`depth_scale`).

    - learned: y = norm(λx + f) with λ = 1 + softplus(b + c·a). a is learned and starts at 0. b is fixed such that λ
      starts at α, or at 1.05 if α is less. c is `rate`, which multiplies Adam's learning rate.
    - depth: y = norm(αx + f).
    - recursive: y = norm₂(x + norm₁(x + f)), which is 2rSkip with norm₁'s gain starting at 1/α instead of 1.
    - mixture: y = Σ_k s_k y_k for k = 1 to 3, where y_k is rSkip's k-th recursion and s = softmax(m). m is learned
      and starts at (0, 2, 0).

    Members: `norm` (learned, depth), `offset` (a, of shape (1); learned), `norms` (recursive, mixture), `logits`
    (m, of shape (3); mixture).
    """

    def __init__(
        self,
        features: int,
        *,
        norm: str,
        form: Literal["learned", "depth", "recursive", "mixture"] = "learned",
        rate: Positive = 0.01,
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.form = form
        self.rate = rate
        self.first = depth_scale(place)
        if form == "learned":
            self.first = max(self.first, _LEAST)
            self._start = softplus_inverse(self.first - 1)
            self.offset = nn.Parameter(torch.zeros(1))  # fully_shard refuses parameters of shape ()
        elif form == "mixture":
            self.logits = nn.Parameter(torch.zeros(3))
        if form in ("learned", "depth"):
            self.norm = build_norm(norm, features, feature_dim)
        else:
            norms = 2 if form == "recursive" else 3
            built: list[Normalisation] = [build_norm(norm, features, feature_dim) for _ in range(norms)]
            if form == "recursive":
                built[0] = FirstGain(built[0], 1 / self.first)
            self.norms = nn.ModuleList(built)
        self.reset_parameters()

    def _initialise(self) -> None:
        if self.form == "learned":
            nn.init.zeros_(self.offset)
        elif self.form == "mixture":
            fill(self.logits, one_hot(1, 3, _FAVOURED))

    @property
    def scale(self) -> float | Tensor:
        """λ: α as a number, or the learned λ as a scalar tensor."""
        if self.form != "learned":
            return self.first
        return 1 + functional.softplus(self._start + self.rate * at_least_float32(self.offset)).squeeze(0)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        if self.form in ("learned", "depth"):
            scale = self.scale
            y: Tensor = self.norm(f + scale * x if isinstance(scale, Tensor) else torch.add(f, x, alpha=scale))
            return y
        ys = [f]
        for norm in self.norms:
            ys.append(norm(x + ys[-1]))
        if self.form == "recursive":
            return ys[-1]
        shares = torch.softmax(at_least_float32(self.logits), 0)
        return sum((share * y for share, y in zip(shares[1:], ys[2:], strict=True)), shares[0] * ys[1])

    def as_norms(self) -> NormalisedSum:
        if self.form in ("learned", "depth"):
            return NormalisedSum(norms=(self.norm,), scale=self.scale)
        shares = torch.softmax(at_least_float32(self.logits), 0) if self.form == "mixture" else None
        return NormalisedSum(norms=tuple(self.norms), shares=shares)
