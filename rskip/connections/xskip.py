"""The expanded skip connection: the input enters with a fixed factor."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.connections.connection import Connection
from rskip.connections.norms import build_norm
from rskip.connections.options import Number
from rskip.connections.registry import Factor, register_connection


@register_connection(
    "xskip",
    formula="norm(λx + βf), β = branch_scale",
    source="rSkip paper, Eq. 2 and 3; λ=β=1 is ResNet (He et al. 2016), with ln the post-norm Transformer",
    factor=Factor("scale"),
    norms=(None, "ln", "rms", "bn"),
    options={"branch_scale": Number(1, positive=True)},
)
class XSkip(Connection):
    """y = norm(λx + βf): λ is `scale`, β is `branch_scale`. Members: `norm`, None without a normalisation."""

    def __init__(
        self, features: int, *, scale: float, norm: str | None, branch_scale: float, feature_dim: int = -1
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

    def extra_repr(self) -> str:
        return f"scale={self.scale}, branch_scale={self.branch_scale}, {super().extra_repr()}"
