"""MUDD's residual form: DenseFormer's weighted sums, with weights that depend on the position's own values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.connection import State, tensors
from rskip.connections.denseformer import DenseFormer, DenseFormerStack, averaged
from rskip.connections.linear import LinearMap
from rskip.connections.mixing import Mixing
from rskip.connections.norms import EPS, at_least_float32
from rskip.formulas.parameters import TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection


@register_connection("mudd", source="Xiao et al. 2025, the residual stream's connection alone; initial W₁: ours")
class MUDD(DenseFormer):
    """denseformer's formula, with a_j + w_j in place of a_j, where w = W₂·gelu(W₁·RMS(X_l)) at each position.

    RMS has no gain. W₂ starts at 0 and a one-hot on X_l, so the stack starts as pre-norm.
    Members: `norm`, and in a layer's last block `weights` (a, l + 1), `down` (W₁, l + 1 rows), `up` (W₂).
    """

    closing_norm = True
    stack = DenseFormerStack
    reads_earlier_layers = True

    def __init__(self, features: int, *, norm: TextNorm = "ln", place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, place=place, feature_dim=feature_dim)
        self.eps = EPS
        if self.weights is not None:
            count = len(self.weights)
            self.down = LinearMap(features, count, first_weight=nn.init.xavier_uniform_, first_bias=None)
            self.up = LinearMap(count, count, first_weight=nn.init.zeros_, first_bias=None)
            self.down.reset_parameters()
            self.up.reset_parameters()

    def after(self, kept: State, f: Tensor) -> State:
        x, *outputs = kept
        x = x + f
        return (x, *outputs) if self.weights is None else averaged([*outputs, x], self._weights_at(x))

    def _weights_at(self, x: Tensor) -> Sequence[Tensor]:
        """a_j + w_j (..., 1) for each j."""
        values = at_least_float32(x)
        normalised = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + self.eps)
        hidden = functional.gelu(self.down(normalised.to(self.down.weight.dtype)))
        return (self.weights + self.up(hidden)).unsqueeze(-2).unbind(-1)

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        if self.weights is None:
            return super().as_mixing(state, f)
        return self._mixing(torch.cat(list(self._weights_at(tensors(state, self, self.outputs)[0] + f)), dim=-1))
