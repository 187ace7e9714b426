"""GatedResidual: streams read through a gate for each of their features, and written with one gate per stream."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

from rskip.connections.connection import Resettable, State
from rskip.connections.hyper import CopiedStreams, Streams, StreamsConnection, streams_of
from rskip.connections.linear import LinearMap
from rskip.connections.norms import EPS, at_least_float32
from rskip.formulas.parameters import Bounds
from rskip.formulas.registry import register_connection

Rank = Annotated[int, Bounds(1, 4096)]


class GatedReading(Resettable):
    """(z, mean_k g_k ⊙ z_k) with z_k = RMS(h_k), a gain for each stream, and g = σ(U·silu(D·z/n)).

    Shape: (..., n, C) -> (..., nC) and (..., C). The gates are in float32 or better.
    Members: `gain` (nC), `down` (D), `up` (U).
    """

    def __init__(self, features: int, streams: int, rank: int) -> None:
        super().__init__()
        self.streams, self.eps = streams, EPS
        self.gain = self.learned("gain", 1.0, streams * features)
        self.down = LinearMap(streams * features, rank, first_weight=None, first_bias=None)
        self.up = LinearMap(rank, streams * features, first_weight=None, first_bias=None)

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        z = functional.rms_norm(streams, streams.shape[-1:], eps=self.eps).flatten(-2) * self.gain.to(streams.dtype)
        gates = torch.sigmoid(at_least_float32(self.up(functional.silu(self.down(z) / self.streams))))
        return z, (gates * z).unflatten(-1, (self.streams, -1)).mean(-2).to(z.dtype)


class GatedResidualStack(CopiedStreams):
    """The stack starts with n copies of x and ends with one more reading. Members: `reading`."""

    def __init__(self, features: int, *, streams: int, rank: int, **settings: Any) -> None:
        super().__init__(features, streams=streams)
        self.reading = GatedReading(features, streams, rank)

    def leave(self, state: State) -> Tensor:
        x: Tensor = self.reading(streams_of(state, self))[1]
        return x


@register_connection("gated_residual", source="Qwen4-Exp, as in transformers 5.24 (Qwen4ExpTextGatedResidual)")
class GatedResidual(StreamsConnection):
    """h_k ← h_k + 2σ(w_k·z/n)·f, where f = F(mean_k g_k ⊙ z_k), z_k = RMS(h_k), g = σ(U·silu(D·z/n)), for n streams h;
    the stack gives one more mean.

    D and U map all nC values to `rank` and back, so every feature of every stream has a gate. RMS has a gain for each
    stream. Initially the gates are near 1/2 and 2σ(·) is near 1: on copied streams this is nearly the pre-norm block
    with RMS and a gain of 1/2.

    :param streams: n.
    :param rank: number of hidden values of the gates; Qwen4-Exp has 320.

    Members: `reading` (`gain`, `down`, `up`), `inject` (w).
    """

    stack = GatedResidualStack

    def __init__(self, features: int, *, streams: Streams = 4, rank: Rank = 32, feature_dim: int = -1) -> None:
        super().__init__(features, feature_dim=feature_dim)
        self.streams = streams
        self.reading = GatedReading(features, streams, rank)
        self.inject = LinearMap(streams * features, streams, first_weight=None, first_bias=None)

    def before(self, state: State) -> tuple[Tensor, State]:
        streams = streams_of(state, self)
        z, x = self.reading(streams)
        outputs = 2 * torch.sigmoid(at_least_float32(self.inject(z) / self.streams))
        return x, (streams, outputs.unsqueeze(-1))
