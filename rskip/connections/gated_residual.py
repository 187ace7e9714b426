"""GatedResidual: streams read through a gate for each of their features, and written with one gate per stream."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

from rskip.connections.connection import Connection, Resettable, State
from rskip.connections.hyper import CopiedStreams, Streams, StreamsConnection, streams_of
from rskip.connections.linear import LinearMap
from rskip.connections.norms import EPS, at_least_float32, under_autocast, without_autocast
from rskip.connections.stream_kernels import (
    address,
    check_first_order,
    described,
    distances,
    hooked,
    library_for,
    readable,
)
from rskip.cpu.library import Library
from rskip.cpu.structures import Gated, constants, packing
from rskip.formulas.parameters import Bounds
from rskip.formulas.registry import register_connection

Rank = Annotated[int, Bounds(1, 4096)]

_TENSORS = ("h", "gain", "roots", "z", "gates", "x", "hidden", "mix", "of_x", "of_output", "of_gates", "of_gain")
_NUMBERS = (
    "step", "tokens", "token", "stream", "of_output_token", "of_output_stream", "features", "streams", "rank",
    "epsilon",
)  # fmt: skip
_ARGUMENTS = packing(Gated, *_TENSORS, *_NUMBERS)


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

    def read(self, streams: Tensor, inject: LinearMap | None = None) -> tuple[Tensor, State] | None:
        """The mean of `forward`, and what `write_streams` takes, by the compiled kernels; None if they can't.

        :param inject: maps z to the logits of the gates that write.
        """
        library = self.library(streams, inject)
        if library is None:
            return None
        injected = None if inject is None else inject.weight
        x, mix, h = _Read.apply(library, self.eps, streams, self.gain, self.down.weight, self.up.weight, injected)
        return x, (h, mix)

    def library(self, streams: Tensor, inject: LinearMap | None) -> Library | None:
        """The compiled kernels, if they compute this reading; otherwise None."""
        library = library_for(streams)
        if not isinstance(library, Library) or under_autocast(streams.device):  # PyTorch's products are narrower there
            return None
        maps = [self.down, self.up, *([] if inject is None else [inject])]
        if any(type(each) is not LinearMap or hooked(each) or [*each._parameters] != ["weight"] for each in maps):
            return None
        if hooked(self) or not readable(self._parameters.get("gain"), *(each.weight for each in maps)):
            return None
        return library


class _Read(torch.autograd.Function):
    """`GatedReading`, with PyTorch's products. It keeps the streams and D·z, and computes z and the gates again.

    The gradient that comes back for its third output, which is h, is that of what `write_streams` made of it.
    """

    @staticmethod
    def forward(
        ctx: Any, library: Library, eps: float, h: Tensor, gain: Tensor, down: Tensor, up: Tensor, inject: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        outer, (n, features), rank = h.shape[:-2], h.shape[-2:], len(down)
        tokens = outer.numel()
        weight = down if inject is None else torch.cat([down, inject])
        z, roots, x = h.new_empty(tokens, n * features), h.new_empty(tokens, n), h.new_empty(*outer, features)
        mix = h.new_empty(*outer, 0 if inject is None else 2 * n)
        ctx.library, ctx.sizes = library, (features, n, rank, eps)
        _run(ctx, constants.Z_AND_ROOTS, h, gain=gain, roots=roots, z=z)
        hidden = (weight @ z.t()).div_(n).t().contiguous()  # MKL prefers this order
        gates = functional.silu(hidden[:, :rank]) @ up.t()
        written = {} if inject is None else {"hidden": hidden, "mix": mix}
        _run(ctx, constants.INPUT, h, z=z, gates=gates, x=x, **written)
        ctx.save_for_backward(h, gain, weight, up, roots, hidden)
        ctx.set_materialize_grads(False)
        return x, mix, h

    @staticmethod
    def backward(ctx: Any, of_x: Tensor | None, of_mix: Tensor | None, of_output: Tensor | None) -> tuple[Any, ...]:
        h, gain, weight, up, roots, hidden = ctx.saved_tensors
        check_first_order()
        (features, n, rank, _), tokens = ctx.sizes, len(hidden)
        of_x = h.new_zeros(tokens, features) if of_x is None else of_x.contiguous()
        read = hidden[:, :rank]
        with without_autocast(h.device):
            gates = (active := functional.silu(read)) @ up.t()
        z, of_gates, of_gain, of_hidden = (torch.empty_like(each) for each in (gates, gates, gain, hidden))
        given = {"gain": gain, "roots": roots, "z": z, "gates": gates, "of_x": of_x}
        _run(ctx, constants.OF_LOGITS, h, **given, of_gates=of_gates)
        with without_autocast(h.device):
            written = torch.sigmoid(hidden[:, rank:])
            of_hidden[:, :rank] = torch.ops.aten.silu_backward(of_gates @ up, read)
            of_written = 0 if of_mix is None else of_mix.view(tokens, -1)[:, n:]
            of_hidden[:, rank:] = 2 * of_written * written * (1 - written)
            of_hidden.div_(n)
            of_weight, of_up = of_hidden.t() @ z, (active.t() @ of_gates).t()
            torch.mm(of_hidden, weight, out=z)
        _run(ctx, constants.OF_STREAMS, h, of_output, **given, of_gain=of_gain)
        of_inject = of_weight[rank:] if len(weight) > rank else None
        return None, None, z.view(h.shape), of_gain, of_weight[:rank], of_up, of_inject


def _run(ctx: Any, step: int, h: Tensor, of_output: Tensor | None = None, **tensors: Tensor) -> None:
    """One of the kernels' steps (rskip/cpu/source/kernels.h), on the tensors that it needs."""
    features, n, rank, eps = ctx.sizes
    h, *apart = distances(h)
    of_output, *of_apart = (None, 0, 0) if of_output is None else distances(of_output)
    tensors |= {"h": h} if of_output is None else {"h": h, "of_output": of_output}
    tokens = h.shape[:-2].numel()
    addresses = (address(tensors.get(name)) for name in _TENSORS)
    arguments = _ARGUMENTS.pack(*addresses, step, tokens, *apart, *of_apart, features, n, rank, eps)
    ctx.library.gate_streams(arguments, tokens, work=4 * h.numel())


class GatedResidualStack(CopiedStreams):
    """The stack starts with n copies of x and ends with one more reading. Members: `reading`."""

    def __init__(self, features: int, *, streams: int, rank: int, **settings: Any) -> None:
        super().__init__(features, streams=streams)
        self.reading = GatedReading(features, streams, rank)

    def leave(self, state: State) -> Tensor:
        streams = streams_of(state, self)
        found = self.reading.read(streams)
        x: Tensor = self.reading(streams)[1] if found is None else found[0]
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

    def extra_repr(self) -> str:
        streams = self.inject.weight.new_empty(1, self.streams, self.features)
        return f"{Connection.extra_repr(self)}, computed by {described(self.reading.library(streams, self.inject))}"

    def before(self, state: State) -> tuple[Tensor, State]:
        streams = streams_of(state, self)
        if (found := self.reading.read(streams, self.inject)) is not None:
            return found
        z, x = self.reading(streams)
        outputs = 2 * torch.sigmoid(at_least_float32(self.inject(z) / self.streams))
        return x, (streams, outputs.unsqueeze(-1))
