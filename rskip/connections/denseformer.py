"""DenseFormer: pre-norm layers whose input is a learned weighted sum of all earlier layers' outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rskip.connections.connection import Connection, StackConnection, State, opened, tensors
from rskip.connections.mixing import Mixing
from rskip.connections.norms import build_norm
from rskip.formulas.parameters import TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection


def averaged(outputs: Sequence[Tensor], weights: Sequence[Tensor]) -> State:
    """The state after a layer: Σ_j weights_j·outputs_j, then the outputs X_0 to X_l."""
    first, *others = weights
    average = first * outputs[0]
    for weight, output in zip(others, outputs[1:], strict=True):
        average = torch.addcmul(average, weight, output)
    return average.to(outputs[0].dtype), *outputs


class DenseFormerStack(StackConnection):
    """The state holds x and the outputs so far, beginning with the embedding."""

    def enter(self, x: Tensor) -> State:
        return opened(x, x)

    def leave(self, state: State) -> Tensor:
        return tensors(state, self)[0]


@register_connection("denseformer", source="Pagliardini et al. 2024, section 3, without dilation and period")
class DenseFormer(Connection):
    """y = x + F(norm(x)), after layer l x ← Σ_j a_j·X_j of the embedding X_0 and the layers' outputs X_1 to X_l.

    X_l is layer l's output before that sum. a is learned and starts one-hot on X_l, so the stack starts as pre-norm.
    Members: `norm`, and in a layer's last block `weights` (l + 1).
    """

    closing_norm = True
    stack = DenseFormerStack
    reads_earlier_layers = True

    def __init__(self, features: int, *, norm: TextNorm = "ln", place: Place, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.outputs = place.layer + 1  # number of tensors in its state
        self.norm = build_norm(norm, features, feature_dim)
        first = [0.0] * place.layer + [1.0]
        self.weights = self.learned("weights", first) if place.ends_layer else None

    def before(self, state: State) -> tuple[Tensor, State]:
        outputs = tensors(state, self, self.outputs)
        return self.norm(outputs[0]), outputs

    def after(self, kept: State, f: Tensor) -> State:
        x, *outputs = kept
        x = x + f
        return (x, *outputs) if self.weights is None else averaged([*outputs, x], self.weights.unbind())

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        kept = torch.eye(self.outputs)
        if self.weights is None:
            return Mixing(reads=kept[0], carries=kept, adds=kept[0])
        return self._mixing(self.weights)

    def _mixing(self, weights: Tensor) -> Mixing:
        """The step of a layer's last block with the weights of X_0 to X_l, where X_l is x + f: (..., l + 1)."""
        kept = torch.eye(self.outputs, dtype=weights.dtype)
        outputs = kept.roll(-1, 0).expand(*weights.shape[:-1], -1, -1)  # X_0 to X_{l-1}, then x
        carries = torch.cat([weights.roll(1, -1).unsqueeze(-2), outputs], dim=-2)
        added = kept[-1].expand(*weights.shape[:-1], -1)
        return Mixing(reads=kept[0], carries=carries, adds=torch.cat([weights[..., -1:], added], dim=-1))
