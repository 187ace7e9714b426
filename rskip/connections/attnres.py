"""Attention residuals: each branch's input is an attention over the embedding and sums of earlier sublayer outputs."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from rskip.connections.connection import Connection, Resettable, StackConnection, State, opened, tensors
from rskip.connections.mixing import Mixing
from rskip.connections.norms import RMSNorm, at_least_float32, build_norm, without_autocast
from rskip.formulas.parameters import Bounds, TextNorm
from rskip.formulas.place import Place
from rskip.formulas.registry import register_connection


class DepthAttention(Resettable):
    """h = Σ_i softmax_i(w·RMS(v_i)) v_i over tensors v_i of one shape (..., C), separately at each position.

    w starts at 0, so h starts as the mean. The softmax is in float32 or better. Members: `query` (w, C), `norm`.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.query = self.learned("query", 0.0, features)
        self.norm = RMSNorm(features)

    def weights(self, stacked: Tensor) -> Tensor:
        """The attention to each value: (..., number of values, C) -> (..., number of values)."""
        gain = at_least_float32(self.norm.weight) * at_least_float32(self.query)  # so RMS(v) is not kept for backward
        root = torch.rsqrt(stacked.square().mean(-1) + self.norm.eps)
        with without_autocast(stacked.device):
            return (root * (stacked @ gain)).softmax(-1)

    def forward(self, values: tuple[Tensor, ...]) -> Tensor:
        stacked = at_least_float32(torch.stack(values, dim=-2))
        return (self.weights(stacked).unsqueeze(-1) * stacked).sum(-2).to(values[0].dtype)


class AttnResStack(StackConnection):
    """The state holds the embedding and the sums so far. The stack's output is an attention over all of them.

    Members: `attention`.
    """

    def __init__(self, features: int, **settings: Any) -> None:
        super().__init__()
        self.attention = DepthAttention(features)

    def enter(self, x: Tensor) -> State:
        return opened(x)

    def leave(self, state: State) -> Tensor:
        return self.attention(tensors(state, self))


@register_connection(
    "attnres",
    source="Kimi Team 2026, Eq. 2 to 6, the block form; as many blocks as branches is the full form",
)
class AttnRes(Connection):
    """f = F(norm(h)) with h = Σ_i softmax_i(w·RMS(b_i)) b_i, where b_0 is the stack's input and b_1 to b_N are sums of
    sublayer outputs, the last one so far; the stack gives one more h.

    f is added to the last b_i, or starts the next one. Branch l of L belongs to sum ⌈lN/L⌉, so the sizes of the sums
    differ by at most one. w starts at 0. The first branch receives norm(b_0).

    :param blocks: N.

    Members: `norm`, and `attention` in every block except the first.
    """

    closing_norm = True
    stack = AttnResStack
    reads_earlier_layers = True

    def __init__(
        self,
        features: int,
        *,
        norm: TextNorm = "ln",
        blocks: Annotated[int, Bounds(1, 10**6)] = 8,
        place: Place,
        feature_dim: int = -1,
    ) -> None:
        super().__init__(features, feature_dim=feature_dim)
        sums = _block(place.sublayer - 1, place, blocks)  # number of sums that earlier branches contribute to
        self.begins = _block(place.sublayer, place, blocks) != sums
        self.values = 1 + sums  # number of tensors in its state
        self.norm = build_norm(norm, features, feature_dim)
        self.attention = DepthAttention(features) if place.sublayer > 1 else None

    def before(self, state: State) -> tuple[Tensor, State]:
        values = tensors(state, self, self.values)
        return self.norm(values[0] if self.attention is None else self.attention(values)), values

    def after(self, kept: State, f: Tensor) -> State:
        return (*kept, f) if self.begins else (*kept[:-1], kept[-1] + f)

    def as_mixing(self, state: State, f: Tensor) -> Mixing:
        values = at_least_float32(self.parts(tensors(state, self, self.values)))
        reads = values.new_ones(1) if self.attention is None else self.attention.weights(values)
        kept = torch.eye(self.values + self.begins)
        return Mixing(reads=reads, carries=kept[:, : self.values], adds=kept[-1])


def _block(sublayer: int, place: Place, blocks: int) -> int:
    """The number of the sum, from 1, that a branch's output is added to; 0 before the first branch."""
    return -(-sublayer * min(blocks, place.sublayers) // place.sublayers)
