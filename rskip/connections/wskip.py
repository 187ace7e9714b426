"""The weighted skip connection: the input enters with a learned factor for each feature."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.options import Number
from rskip.connections.registry import register_connection


@register_connection(
    "wskip",
    formula="norm(w ⊙ x + f), w learned",
    source="rSkip paper, section 4.3, Learning λ",
    norms=("ln", "rms", "bn"),
    options={"init": Number(1)},
)
class WSkip(Connection):
    """y = norm(w ⊙ x + f): w, one number a feature, starts as `init`. Members: `skip_weight` (C), `norm`."""

    def __init__(self, features: int, *, norm: str, init: float, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.init = init
        self.skip_weight = nn.Parameter(torch.full((features,), float(init)))
        self.norm = build_norm(norm, features, feature_dim)

    def reset_parameters(self, weight_init: Callable[[Tensor], object] = nn.init.xavier_uniform_) -> None:
        super().reset_parameters(weight_init)
        nn.init.constant_(self.skip_weight, self.init)

    def combine(self, x: Tensor, f: Tensor) -> Tensor:
        trailing = x.dim() - 2 if self.feature_dim == 1 else 0
        w = self.skip_weight.view(-1, *[1] * trailing)
        return self.norm(torch.addcmul(f, w, x))

    def extra_repr(self) -> str:
        return f"init={self.init}, {super().extra_repr()}"
