"""A λ that nobody has to search: it starts by the model's depth, and may be learned from there. This project's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

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
from rskip.settings.errors import SettingError

_LEAST = 1.05  # that a learned λ starts as: its floor is 1
_FAVOURED = 2.0  # the logit of y₂ in a mixture of y₁ to y₃, beside 0


def _check(spec: ConnectionSpec) -> None:
    options = dict(spec.options)
    if "rate" in options and "form" in options:
        expected = f"no rate with form={options['form']}, which is the learned form's; leave rate out"
        raise SettingError.of_value("connection", str(spec), expected)


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
    check=_check,
    fold=_fold,
)
class ASkip(Connection):
    """An adaptive λ, by `form`; α is DeepNorm's factor by depth (`depth_scale`).

    - learned: y = norm(λx + f), λ = 1 + softplus(b + c·a): b by which λ is α at first (1.05 where α is less), c the
      `rate`, by which Adam's learning rate is multiplied, and a learned, 0 at first.
    - depth: y = norm(αx + f).
    - recursive: 2rSkip, y = norm₂(x + norm₁(x + f)), where norm₁'s gain starts as 1/α in place of 1.
    - mixture: y = Σ_k s_k y_k for k = 1 to 3, y_k of rSkip's recursion, s = softmax(m), m learned, (0, 2, 0) at first.

    Members: `norm` (learned, depth), `offset` (1), which is a (learned), `norms` (recursive, mixture), `logits` (3),
    which is m (mixture).
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

    def reset_parameters(self, weight_init: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
        super().reset_parameters(weight_init)
        if self.form == "learned":
            nn.init.zeros_(self.offset)
        elif self.form == "mixture":
            fill(self.logits, one_hot(1, 3, _FAVOURED))

    @property
    def scale(self) -> float | Tensor:
        """λ: α, or the learned one ()."""
        if self.form != "learned":
            return self.first
        return 1 + functional.softplus(self._start + self.rate * at_least_float32(self.offset)).squeeze(0)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        offset = state_dict.get(f"{prefix}offset")
        if offset is not None and not offset.shape:  # of a version before 0.1.0
            state_dict[f"{prefix}offset"] = offset[None]
        super()._load_from_state_dict(state_dict, prefix, *args)

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

    def extra_repr(self) -> str:
        return f"form={self.form}, first={self.first:g}, {super().extra_repr()}"
