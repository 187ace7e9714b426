"""nGPT's residual update: a step on the sphere from x towards f."""

from __future__ import annotations

from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.norms import EPS, at_least_float32, divided_by_rms
from rskip.formulas.parameters import Positive
from rskip.formulas.registry import register_connection


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
