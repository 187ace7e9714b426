"""The recursive skip connection: the input is added again and again, with a normalisation each time."""

from __future__ import annotations

from torch import Tensor, nn

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.registry import Factor, register_connection


@register_connection(
    "rskip",
    formula="y_k = norm_k(x + y_{k-1}) for k = 1..λ, y_0 = f, y = y_λ",
    source="rSkip paper, Eq. 4",
    factor=Factor("recursion", integer=True),
    norms=("ln", "rms", "bn"),
    without_norm="{factor}rskip without a normalisation equals {factor}xskip",
)
class RSkip(Connection):
    """y_1 = norm_1(x + f), y_k = norm_k(x + y_{k-1}), y = y_λ: λ is `recursion`.

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

    def extra_repr(self) -> str:
        return f"recursion={self.recursion}, {super().extra_repr()}"
