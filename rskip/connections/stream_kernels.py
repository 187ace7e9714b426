"""Streams with the compiled kernels, forward and backward: one operator on each side of the branch.

They take float32 on a CPU, and 2, 4 or 8 streams whose features fill vectors. Otherwise PyTorch computes: on other
devices and types, within torch.compile, export and the transforms of torch.func, and with RSKIP_KERNELS=0. Sources of
the formulas: `rskip.connections.hyper` and `rskip.connections.frac`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rskip.connections.norms import LayerNorm, RMSNorm
from rskip.cpu.library import Library, find_library
from rskip.cpu.structures import Reading, Writing, constants

VARIABLE = "RSKIP_KERNELS"
STREAMS = (2, 4, 8)
MANIFOLD, DYNAMIC = constants.MANIFOLD, constants.DYNAMIC
NO_NORM, RMS_NORM = constants.NO_NORM, constants.RMS_NORM
_KINDS = {LayerNorm: constants.LAYER_NORM, RMSNorm: RMS_NORM}
_off = os.environ.get(VARIABLE) == "0"

Norm = tuple[int, float, Tensor | None, Tensor | None]  # kind, eps, gain, shift
UNFUSED: Norm = (NO_NORM, 0.0, None, None)


def library_for(h: Tensor) -> Library | None:
    """The kernels, if they take these streams (..., n, C); otherwise None."""
    return kernels_for(h) if h.size(-2) in STREAMS else None


def kernels_for(*tensors: Tensor) -> Library | None:
    """The kernels, if they take these tensors (..., C); otherwise None."""
    for each in tensors:
        if each.dtype != torch.float32 or not each.is_cpu or type(each) is not Tensor or not each.numel():
            return None
    if _off or torch.compiler.is_compiling() or torch.jit.is_tracing() or forward_ad._current_level >= 0:
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    library = find_library().library
    return library if library is not None and tensors[0].size(-1) % library.chunk == 0 else None


def fused(norm: nn.Module) -> Norm:
    """What the kernels need of a normalisation of the last dimension; `UNFUSED` if only the module can compute it."""
    kind = _KINDS.get(type(norm), NO_NORM)  # type: ignore[arg-type]
    weight: Any = norm.weight if kind else None
    if weight is None or norm.feature_dim != -1 or weight.dtype != torch.float32:
        return UNFUSED
    if norm._forward_hooks or norm._forward_pre_hooks or norm._backward_hooks or norm._backward_pre_hooks:
        return UNFUSED
    return kind, norm.eps, weight, getattr(norm, "bias", None)  # type: ignore[return-value]


@dataclass(frozen=True)
class Reads:
    """What a connection's reading consists of, apart from its tensors (rskip/cpu/source/kernels.h).

    :param form: MANIFOLD or DYNAMIC.
    :param outputs: values per row.
    :param norm, row_norm: kinds of the branch's normalisation and of the rows'.
    :param parts: number of branch inputs per token: 1, or n, whose norm is over all of them.
    :param identity: whether R is the identity.
    """

    form: int
    streams: int
    features: int
    outputs: int
    norm: int
    epsilon: float
    row_norm: int
    row_epsilon: float
    parts: int = 1
    identity: bool = False
    iterations: int = 1
    alpha_epsilon: float = 0.0
    beta_epsilon: float = 0.0
    magnitude: float = 2.0
    sinkhorn_epsilon: float = 0.0

    @property
    def width(self) -> int:
        n = self.streams
        return n * self.parts + n + (0 if self.identity else n * n)

    def kept_sizes(self, tokens: int) -> tuple[int, int, int]:
        """How many values, statistics of rows, and statistics of inputs the backward pass needs."""
        rows = tokens * (1 if self.form == MANIFOLD else self.streams)
        return rows * self.outputs, rows * 2, tokens * 2


reads_of = lru_cache(maxsize=None)(Reads)

# In the order of `Reading`: weight, weight2, row_gain, row_shift, scale, scale2, bias, matrices, alpha, residual, beta,
# gain, shift. One tensor (n, q + n) for α and R is alpha, without residual.
Parameters = tuple[Tensor | None, ...]
_MATRICES, _ALPHA, _RESIDUAL = 7, 8, 9


def dynamic_reading(
    connection: Any, row_norm: nn.Module, alpha: Tensor, residual: Tensor | None, *, streams: int, parts: int = 1
) -> tuple[Reads, Parameters] | None:
    """How the kernels read with weights that depend on each stream by a tanh (`hyper`, `frac`); None if they can't."""
    row_kind, row_epsilon, row_gain, row_shift = fused(row_norm)
    if not row_kind or connection.mixing.dtype != torch.float32:
        return None
    norm, epsilon, gain, shift = fused(connection.norm)
    features, outputs = connection.features // parts, parts + streams + 1
    reads = reads_of(DYNAMIC, streams, features, outputs, norm, epsilon, row_kind, row_epsilon, parts=parts)
    return reads, (
        connection.mixing, connection.output_mixing, row_gain, row_shift, connection.mixing_scale,
        connection.output_scale, None, None, alpha, residual, connection.output_weights, gain, shift,
    )  # fmt: skip


def read_streams(
    library: Library, found: tuple[Reads, Parameters], norm: nn.Module, h: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The branch's input (..., qC), and what `write_streams` takes: h (..., n, C) and the weights (..., width)."""
    reads, parameters = found
    if torch.is_grad_enabled():
        x, mix, h = _Read.apply(library, reads, h, *parameters)
    else:
        x, mix, _ = _read(library, reads, h, parameters)
    return x if reads.norm else norm(x), (h, mix)


def write_streams(h: Tensor, mix: Tensor, f: Tensor) -> Tensor:
    """The streams (..., n, C) after the branch, from its output f (..., qC)."""
    library = find_library().library
    assert library is not None
    f = f.to(h.dtype).contiguous()
    if not torch.is_grad_enabled():
        return _write(library, h, mix, f)
    written: Tensor = _Write.apply(library, h, mix, f)
    return written


def _apart(h: Tensor) -> tuple[Tensor, int, int]:
    """h (..., n, C) with its distances between tokens and between streams; a copy, if its tokens lie otherwise."""
    *outer, n, features = h.shape
    if h.is_contiguous():
        return h, n * features, features
    token, stream = h.stride(-3) if outer else n * features, h.stride(-2)
    expected = token
    for size, stride in zip(reversed(outer), reversed(h.stride()[:-2]), strict=True):
        if size != 1 and stride != expected:
            return h.contiguous(), n * features, features
        expected *= size
    if h.stride(-1) == 1 and stream in (0, features):
        return h, token, stream
    return h.contiguous(), n * features, features


def check_first_order() -> None:
    """Raises RuntimeError in a backward pass whose gradients shall have gradients of their own."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True: the compiled kernels have no gradients of gradients. Set the environment variable "
            f"{VARIABLE}=0, and PyTorch computes this connection"
        )


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _addresses(reads: Reads, parameters: Sequence[Tensor | None]) -> list[int | None]:
    found = [address(each) for each in parameters]
    start = found[_ALPHA]
    if start is not None and found[_RESIDUAL] is None:
        found[_RESIDUAL] = start + 4 * reads.parts
    return found


def _reading(
    reads: Reads,
    h: Tensor,
    parameters: Sequence[Tensor | None],
    outputs: tuple[Tensor | None, Tensor, Tensor],
    given: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
    gradients: Sequence[int | None] = (None,) * 13,
) -> Reading:
    """The kernels' arguments.

    :param outputs: x, mix, and what the backward pass needs.
    :param given: gradients of x, of mix and of what `write_streams` gave.
    :param gradients: where those of h and of the parameters, without the matrices, go.
    """
    n, features = reads.streams, reads.features
    h, token, stream = _apart(h)
    of_x, of_mix, of_output = given
    of_token = of_stream = 0
    if of_output is not None:
        of_output, of_token, of_stream = _apart(of_output)
    alpha, joined = parameters[_ALPHA], parameters[_RESIDUAL] is None
    alpha_row, residual_row = (alpha.size(1),) * 2 if alpha is not None and joined else (reads.parts, n)
    tokens = h.shape[:-2].numel()
    x, mix, kept = outputs
    values, row_statistics, _ = reads.kept_sizes(tokens)
    start = kept.data_ptr()
    arguments = Reading(
        h.data_ptr(), *_addresses(reads, parameters), address(x), mix.data_ptr(), start, start + 4 * values,
        start + 4 * (values + row_statistics), address(of_x), address(of_mix), address(of_output), *gradients,
        *[None] * 7, tokens, token, stream, of_token, of_stream, features, n, reads.parts, reads.outputs, reads.width,
        reads.form, reads.row_norm, reads.norm, reads.iterations, alpha_row, residual_row, reads.row_epsilon,
        reads.epsilon, reads.alpha_epsilon, reads.beta_epsilon, reads.magnitude, reads.sinkhorn_epsilon,
    )  # fmt: skip
    arguments.kept = (h, of_output)
    return arguments


def _read(library: Library, reads: Reads, h: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor, Tensor]:
    outer = h.shape[:-2]
    x = h.new_empty((*outer, reads.parts * reads.features))
    mix = h.new_empty((*outer, reads.width))
    kept = h.new_empty(sum(reads.kept_sizes(outer.numel())))
    arguments = _reading(reads, h, parameters, (x, mix, kept))
    library.read_streams(arguments, outer.numel(), work=h.numel() * reads.outputs)
    return x, mix, kept


def _write(library: Library, h: Tensor, mix: Tensor, f: Tensor) -> Tensor:
    assert mix.shape[:-1] == f.shape[:-1] == h.shape[:-2], "what another connection kept, or the branch's output"
    output = torch.empty_like(h, memory_format=torch.contiguous_format)
    h, token, stream = _apart(h)
    arguments = Writing(
        h.data_ptr(), mix.data_ptr(), f.data_ptr(), output.data_ptr(), None, None, None, token, stream, 0, 0,
        *_sizes(h, mix, f),
    )  # fmt: skip
    library.write_streams(arguments, mix.shape[:-1].numel(), work=output.numel() * 4)
    return output


def _sizes(h: Tensor, mix: Tensor, f: Tensor) -> tuple[int, int, int, int, bool]:
    """C, n, q, the number of weights, and whether R is the identity."""
    n, features = h.shape[-2:]
    parts, width = f.size(-1) // features, mix.size(-1)
    return features, n, parts, width, width == n * parts + n


class _Read(torch.autograd.Function):
    """The gradient that comes back for its third output, which is h, is that of what `_Write` made of it.

    So one pass over h and that gradient finds all of h's gradient, and that of R.
    """

    @staticmethod
    def forward(
        ctx: Any, library: Library, reads: Reads, h: Tensor, *parameters: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, mix, kept = _read(library, reads, h, parameters)
        ctx.library, ctx.reads = library, reads
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(h, mix, kept, *parameters)
        return x, mix, h

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        h, mix, kept, *parameters = ctx.saved_tensors
        reads, (of_x, of_mix, of_output) = ctx.reads, given
        check_first_order()
        of_x = h.new_zeros((*h.shape[:-2], reads.parts * reads.features)) if of_x is None else of_x.contiguous()
        of_mix = None if of_mix is None else of_mix.contiguous()
        gradient = torch.empty_like(h, memory_format=torch.contiguous_format)
        learned = [None if number == _MATRICES else each for number, each in enumerate(parameters)]
        sizes = [0 if each is None else each.numel() for each in learned]
        parts = h.new_empty(sum(sizes)).split(sizes)
        found = [None if each is None else part.view(each.shape) for each, part in zip(learned, parts, strict=True)]
        addresses = _addresses(reads, found)
        del addresses[_MATRICES]
        arguments = _reading(
            reads, h, parameters, (None, mix, kept), (of_x, of_mix, of_output), (gradient.data_ptr(), *addresses)
        )
        ctx.library.read_streams_gradient(arguments, h.shape[:-2].numel(), work=3 * h.numel() * reads.outputs)
        return None, None, gradient, *found


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: Library, h: Tensor, mix: Tensor, f: Tensor) -> Tensor:
        ctx.library = library
        ctx.save_for_backward(mix, f)
        return _write(library, h, mix, f)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
        mix, f = ctx.saved_tensors
        check_first_order()
        gradient, token, stream = _apart(given[0])
        of_mix, of_f = torch.empty_like(mix), torch.empty_like(f)
        arguments = Writing(
            None, mix.data_ptr(), f.data_ptr(), None, gradient.data_ptr(), of_mix.data_ptr(), of_f.data_ptr(), 0, 0,
            token, stream, *_sizes(gradient, mix, f),
        )  # fmt: skip
        ctx.library.write_streams_gradient(arguments, mix.shape[:-1].numel(), work=gradient.numel())
        return None, given[0], of_mix, of_f  # the gradients of h and R: see `_Read`
