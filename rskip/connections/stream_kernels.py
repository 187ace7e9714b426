"""Streams with kernels, forward and backward: one operator on each side of the branch.

The kernels take 2, 4 or 8 streams: on a CPU the compiled ones (`rskip.cpu`), in float32, if the features fill vectors;
on a GPU, with RSKIP_KERNELS=triton, those of Triton (`rskip.connections.triton_streams`), in float32, bfloat16 or
float16, up to 8,192 features: they have not run on a card yet. Otherwise PyTorch computes: on other devices and types,
within torch.compile, export and the transforms of torch.func, and with RSKIP_KERNELS=0. With TRITON_INTERPRET=1,
Triton's interpreter runs its kernels on a CPU. Sources of the formulas: `rskip.connections.hyper` and
`rskip.connections.frac`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from rskip.connections.norms import LayerNorm, RMSNorm, at_least_float32, under_autocast
from rskip.cpu.library import Library, find_library
from rskip.cpu.structures import Reading, Writing, constants, packing

VARIABLE = "RSKIP_KERNELS"
STREAMS = (2, 4, 8)
MANIFOLD, DYNAMIC = constants.MANIFOLD, constants.DYNAMIC
NO_NORM, RMS_NORM = constants.NO_NORM, constants.RMS_NORM
_KINDS = {LayerNorm: constants.LAYER_NORM, RMSNorm: RMS_NORM}
MOST_FEATURES, MOST_TENSORS = 8192, 16  # in Triton's kernels, which are compiled for each number of tensors
_FLOAT32 = torch.float32
_TRITON_TYPES = (_FLOAT32, torch.bfloat16, torch.float16)
_off, on_gpu = os.environ.get(VARIABLE) == "0", os.environ.get(VARIABLE) == "triton"
_interpreted = os.environ.get("TRITON_INTERPRET") == "1"

Norm = tuple[int, float, Tensor | None, Tensor | None]  # kind, eps, gain, shift
UNFUSED: Norm = (NO_NORM, 0.0, None, None)

# In the order of `_PARAMETERS`, that of `Reading`. One tensor (n, q + n) for α and R is alpha, without residual.
Parameters = tuple[Tensor | None, ...]
_PARAMETERS = (
    "weight", "weight2", "row_gain", "row_shift", "scale", "scale2", "bias", "matrices", "alpha", "residual", "beta",
    "gain", "shift",
)  # fmt: skip
_MATRICES, _ALPHA, _RESIDUAL = 7, 8, 9
_KEPT = ("mix", "values", "row_statistics", "statistics")
_ROWS = ("tokens", "token", "stream", "alpha_row", "residual_row")
_SIZES = ("features", "streams", "parts", "outputs", "width", "form", "row_norm", "norm", "iterations")
_NUMBERS = ("row_epsilon", "epsilon", "alpha_epsilon", "beta_epsilon", "magnitude", "sinkhorn_epsilon")
_GRADIENTS = [f"of_{name}" for name in _PARAMETERS if name != "matrices"]
_FORWARD = packing(Reading, "h", *_PARAMETERS, "previous", "x", *_KEPT, *_ROWS, *_SIZES, *_NUMBERS)
_BACKWARD = packing(
    Reading, "h", *_PARAMETERS, "previous", *_KEPT, "of_x", "of_mix", "of_output", "gradient", *_GRADIENTS,
    "of_previous", *_ROWS, "of_output_token", "of_output_stream", *_SIZES, *_NUMBERS,
)  # fmt: skip
_RECIPE = "_rskip_recipe"  # attribute of a state, how to compute it again
_LAST = ("features", "streams", "parts", "width", "identity")
_WRITE = packing(Writing, "h", "mix", "f", "output", "token", "stream", *_LAST)
_WRITE_BACKWARD = packing(
    Writing, "mix", "f", "gradient", "of_mix", "of_f", "gradient_token", "gradient_stream", *_LAST
)  # fmt: skip


class TritonKernels:
    """Triton's kernels, in the place of a `Library`: its modules `streams` and `depth`."""

    def __init__(self) -> None:
        self.streams: Any = import_module("rskip.connections.triton_streams")
        self.depth: Any = import_module("rskip.connections.triton_depth")


Kernels = Library | TritonKernels


@cache
def find_triton() -> TritonKernels | None:
    try:
        import triton
    except ImportError:  # PyTorch comes without Triton for some systems
        return None
    of_triton = tuple(map(int, triton.__version__.split(".")[:2]))
    return TritonKernels() if of_triton >= (3, 3) else None  # 3.2, of PyTorch 2.6, fails in attention over the layers


@cache
def _suits(device: torch.device) -> bool:
    """Whether Triton's kernels run on this GPU; warns if they should and don't."""
    triton = find_triton()
    if triton is None or not torch.version.hip and torch.cuda.get_device_capability(device) < (8, 0):
        return False
    h = torch.zeros(1, 2, 1, device=device)
    try:
        triton.streams.write(h, (2, 1), h.new_zeros(1, 8), h[:, 0])
    except Exception as error:  # of any type: Triton's compiler, the C compiler that it needs, the driver
        reason = str(error).partition("\n")[0]
        effect = "Triton's kernels are not used, so PyTorch computes connections with streams more slowly"
        warnings.warn(f"{effect}: on {device} they fail with {type(error).__name__}: {reason}", stacklevel=2)
        return False
    return True


def described(library: Kernels | None) -> str:
    """What computes, for a module's `repr`."""
    if library is None:
        return "PyTorch"
    return "Triton" if isinstance(library, TritonKernels) else f"kernels ({library.instructions})"


def on_triton(tensor: Tensor) -> bool:
    """Whether Triton's kernels, rather than the compiled ones, are for such tensors."""
    return on_gpu if tensor.is_cuda else _interpreted and tensor.is_cpu


def library_for(h: Tensor, *, triton: bool = True) -> Kernels | None:
    """The kernels, if they take these streams (..., n, C); otherwise None.

    :param triton: whether Triton has these kernels too.
    """
    library = kernels_for(h) if h.size(-2) in STREAMS else None
    return library if triton or isinstance(library, Library) else None


def kernels_for(*tensors: Tensor) -> Kernels | None:
    """The kernels, if they take these tensors (..., C) of one shape; otherwise None."""
    device, triton = tensors[0].device, on_triton(tensors[0])
    for each in tensors:
        if each.dtype not in _TRITON_TYPES if triton else each.dtype != torch.float32:
            return None
        if each.device != device or type(each) is not Tensor or not each.numel():
            return None
    if _off or torch.compiler.is_compiling() or torch.jit.is_tracing() or under_transforms():
        return None
    if len(tensors) > 1 and any(each.shape != tensors[0].shape for each in tensors):
        return None
    if triton:
        small = tensors[0].size(-1) <= MOST_FEATURES and len(tensors) <= MOST_TENSORS
        return find_triton() if small and (_interpreted or _suits(device)) else None
    if not tensors[0].is_cpu:
        return None
    library = find_library().library
    return library if library is not None and tensors[0].size(-1) % library.chunk == 0 else None


def under_transforms() -> bool:
    """Whether torch.func or forward-mode differentiation is active, for which kernels have no rules."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def widened(x: Tensor) -> Tensor:
    """x in float32, as the compiled kernels take it, if autocast may have made it narrower on a CPU; otherwise x."""
    return at_least_float32(x) if x.is_cpu and under_autocast(x.device) else x


def readable(*parameters: Tensor | None) -> bool:
    """Whether the kernels read all these parameters. A parametrization leaves None in a parameter's place."""
    for each in parameters:
        if each is None or each.dtype is not _FLOAT32 or not each.is_cpu or not each.is_contiguous():
            return all(map(_readable_by_triton, parameters))
    return True


def _readable_by_triton(each: Tensor | None) -> bool:
    return each is not None and on_triton(each) and each.dtype in _TRITON_TYPES and each.is_contiguous()


def hooked(module: nn.Module) -> bool:
    """Whether the module has a hook, other than one that only observes and says so by its attribute `observes`."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(own) and any(not getattr(hook, "observes", False) for hooks in own for hook in hooks.values())


def fused(norm: Any) -> Norm:
    """What the kernels need of a normalisation of the last dimension; `UNFUSED` if only the module can compute it."""
    kind = _KINDS.get(type(norm), NO_NORM)
    if not kind or norm.feature_dim != -1 or hooked(norm):
        return UNFUSED
    weight, bias = norm._parameters.get("weight"), norm._parameters.get("bias")
    if not (readable(weight) if bias is None else readable(weight, bias)):
        return UNFUSED
    return kind, norm.eps, weight, bias


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

    @cached_property
    def width(self) -> int:
        n = self.streams
        if self.outputs == n:  # α only
            return n
        return n * self.parts + n + (0 if self.identity else n * n)

    @cached_property
    def fixed(self) -> tuple[float, ...]:
        """The end of the kernels' arguments, which is the same in every call."""
        return tuple(getattr(self, name) for name in (*_SIZES, *_NUMBERS))

    def kept_sizes(self, tokens: int) -> tuple[int, int, int]:
        """How many values, statistics of rows, and statistics of inputs the backward pass needs."""
        rows = tokens * (1 if self.form == MANIFOLD else self.streams)
        return rows * self.outputs, rows * 2, tokens * 2


reads_of = lru_cache(maxsize=None)(Reads)


def dynamic_reading(
    connection: Any, row_norm: str, alpha: str, residual: str, *, streams: int, parts: int = 1
) -> tuple[Reads, Parameters] | None:
    """How the kernels read with weights that depend on each stream by a tanh (`hyper`, `frac`); None if they can't.

    :param row_norm: name of the streams' norm; without this member the weights are the first values.
    :param alpha, residual: names of the first values of α and of R; "": alpha has both.
    """
    row_kind, row_epsilon, row_gain, row_shift = fused(connection._modules.get(row_norm))
    own = connection._parameters.get  # `connection.mixing` would take ten times as long
    first = own(alpha), own(residual), own("output_weights")
    of_data: Parameters = (None,) * 4
    if row_norm in connection._modules:
        of_data = own("mixing"), own("output_mixing"), own("mixing_scale"), own("output_scale")
        if not row_kind or not readable(*of_data):
            return None
    if not (readable(*first) if residual else readable(first[0], first[2])):
        return None
    norm, epsilon, gain, shift = fused(connection._modules["norm"])
    features, outputs = connection.features // parts, parts + streams + 1
    reads = reads_of(DYNAMIC, streams, features, outputs, norm, epsilon, row_kind, row_epsilon, parts=parts)
    return reads, (
        *of_data[:2], row_gain, row_shift, *of_data[2:], None, None, *first, gain, shift,
    )  # fmt: skip


class Recipe:
    """How the backward pass computes a block's streams again: from an earlier block's, its weights and its f.

    :param start: the streams (..., n, C) that were kept; None: they follow from `before`.
    """

    def __init__(self, start: Tensor | None, before: Recipe | None = None, *written: Any) -> None:
        self.start, self.before, self.written = start, before, written
        self.steps: int = 0 if before is None else before.steps + 1
        self._found = start

    def streams(self) -> Tensor:
        if self._found is None:
            assert self.before is not None
            library, mix, f = self.written
            self._found = _write(library, self.before.streams(), mix, f)
        return self._found

    def release(self) -> None:
        self._found = self.start


def read_streams(
    library: Kernels, found: tuple[Reads, Parameters], norm: nn.Module, h: Tensor, every: int = 0,
    previous: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The branch's input (..., qC), and what `write_streams` takes: h (..., n, C) and the weights (..., width).

    :param every: of which blocks the backward pass gets the streams; it computes those of the others again (Xie et al.
        2025, Eq. 20). 0: of all.
    :param previous: weights (..., n) that read in place of α, which is among the weights; not for Triton's kernels.
    """
    reads, parameters = found
    previous = None if previous is None else previous.to(h).contiguous()
    if not torch.is_grad_enabled():
        x, mix, _ = _read(library, reads, h, previous, parameters)
        return x if reads.norm else norm(x), (h, mix)
    recipe: Recipe | None = getattr(h, _RECIPE, None) if every else None
    if every and (recipe is None or recipe.steps == every):
        recipe = Recipe(h.detach())
    x, mix, h = _Read.apply(library, reads, recipe, h, previous, *parameters)
    if recipe is not None:
        setattr(h, _RECIPE, recipe)
    return x if reads.norm else norm(x), (h, mix)


def write_streams(h: Tensor, mix: Tensor, f: Tensor, parts: int = 1) -> Tensor:
    """The streams (..., n, C) after the branch, from its output f (..., qC), which may broadcast; q is `parts`."""
    triton = on_triton(h)
    library = find_triton() if triton else find_library().library
    assert library is not None
    shape = *h.shape[:-2], parts * h.size(-1)
    if f.shape != shape:
        f = f.expand(shape)  # raises RuntimeError where PyTorch's formula does
    f = (f if triton else f.to(h)).contiguous()
    if not torch.is_grad_enabled():
        return _write(library, h, mix, f)
    written: Tensor = _Write.apply(library, h, mix, f)
    if (recipe := getattr(h, _RECIPE, None)) is not None:
        setattr(written, _RECIPE, Recipe(None, recipe, library, mix.detach(), f.detach()))
    return written


def distances(h: Tensor) -> tuple[Tensor, int, int]:
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


def check_first_order(instead: str = f"{VARIABLE}=0") -> None:
    """Raises RuntimeError in a backward pass whose gradients shall have gradients of their own.

    :param instead: environment variable with which PyTorch computes.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True: the compiled kernels have no gradients of gradients. Set the environment variable "
            f"{instead}, and PyTorch computes in their place"
        )


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _addresses(reads: Reads, tensors: Sequence[Tensor | None]) -> list[int]:
    """The addresses of the parameters, or of their gradients."""
    found = [0 if each is None else each.data_ptr() for each in tensors]
    if found[_ALPHA] and not found[_RESIDUAL]:
        found[_RESIDUAL] = found[_ALPHA] + 4 * reads.parts
    return found


def _rows(reads: Reads, parameters: Parameters) -> tuple[int, int]:
    """How far the rows of α's and R's first values are apart."""
    alpha = parameters[_ALPHA]
    if alpha is not None and parameters[_RESIDUAL] is None:
        return alpha.size(1), alpha.size(1)
    return reads.parts, reads.streams


def in_groups(tokens: int) -> int:
    """The tokens for which the compiled kernels need room, since they keep numbers of whole groups."""
    return -(-tokens // constants.MOST_LANES) * constants.MOST_LANES


def _read(
    library: Kernels, reads: Reads, h: Tensor, previous: Tensor | None, parameters: Parameters
) -> tuple[Tensor, Tensor, Tensor]:
    if isinstance(library, TritonKernels):
        h, *apart = distances(h)
        return library.streams.read(reads, h, apart, parameters)
    outer = h.shape[:-2]
    tokens = outer.numel()
    x = h.new_empty((*outer, reads.parts * reads.features))
    mix = h.new_empty((*outer, reads.width))
    values, of_rows, of_inputs = reads.kept_sizes(in_groups(tokens))
    kept = h.new_empty(values + of_rows + of_inputs)
    start = kept.data_ptr()
    streams, token, stream = distances(h)
    arguments = _FORWARD.pack(
        streams.data_ptr(), *_addresses(reads, parameters), address(previous), x.data_ptr(), mix.data_ptr(), start,
        start + 4 * values, start + 4 * (values + of_rows), tokens, token, stream, *_rows(reads, parameters),
        *reads.fixed,
    )  # fmt: skip
    library.read_streams(arguments, tokens, work=h.numel() * reads.outputs)
    return x, mix, kept


def _write(library: Kernels, h: Tensor, mix: Tensor, f: Tensor) -> Tensor:
    assert mix.shape[:-1] == h.shape[:-2], "what another connection kept"
    if isinstance(library, TritonKernels):
        h, *apart = distances(h)
        return library.streams.write(h, apart, mix, f)
    output = torch.empty_like(h, memory_format=torch.contiguous_format)
    h, token, stream = distances(h)
    arguments = _WRITE.pack(
        h.data_ptr(), mix.data_ptr(), f.data_ptr(), output.data_ptr(), token, stream, *_sizes(h, mix, f)
    )
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
        ctx: Any, library: Kernels, reads: Reads, recipe: Recipe | None, h: Tensor, previous: Tensor | None,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, mix, kept = _read(library, reads, h, previous, parameters)
        ctx.library, ctx.reads, ctx.recipe = library, reads, recipe
        ctx.set_materialize_grads(False)
        keeps = recipe is None or recipe.start is not None
        ctx.save_for_backward(h if keeps else None, previous, mix, kept, *parameters)
        return x, mix, h

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        h, previous, mix, kept, *parameters = ctx.saved_tensors
        h = ctx.recipe.streams() if h is None else h
        if ctx.recipe is not None:
            ctx.recipe.release()
        reads, (of_x, of_mix, of_output) = ctx.reads, given
        check_first_order()
        of_x = h.new_zeros((*h.shape[:-2], reads.parts * reads.features)) if of_x is None else of_x.contiguous()
        of_mix = None if of_mix is None else of_mix.contiguous()
        if isinstance(ctx.library, TritonKernels):
            h, *apart = distances(h)
            of_output, *of_apart = (None, 0, 0) if of_output is None else distances(of_output)
            gradient, *found = ctx.library.streams.read_gradient(
                reads, h, apart, mix, kept, parameters, of_x, of_mix, of_output, of_apart
            )
            return None, None, None, gradient, None, *found
        of_token = of_stream = 0
        if of_output is not None:
            of_output, of_token, of_stream = distances(of_output)
        gradient = torch.empty_like(h, memory_format=torch.contiguous_format)
        of_previous = None if previous is None else torch.zeros_like(previous)
        learned = [None if number == _MATRICES else each for number, each in enumerate(parameters)]
        sizes = [0 if each is None else each.numel() for each in learned]
        parts = h.new_empty(sum(sizes)).split(sizes)
        found = [None if each is None else part.view(each.shape) for each, part in zip(learned, parts, strict=True)]
        addresses = _addresses(reads, found)
        del addresses[_MATRICES]
        streams, token, stream = distances(h)
        tokens, start = h.shape[:-2].numel(), kept.data_ptr()
        values, of_rows, _ = reads.kept_sizes(in_groups(tokens))
        arguments = _BACKWARD.pack(
            streams.data_ptr(), *_addresses(reads, parameters), address(previous), mix.data_ptr(), start,
            start + 4 * values, start + 4 * (values + of_rows), of_x.data_ptr(), address(of_mix), address(of_output),
            gradient.data_ptr(), *addresses, address(of_previous), tokens, token, stream, *_rows(reads, parameters),
            of_token, of_stream, *reads.fixed,
        )  # fmt: skip
        ctx.library.read_streams_gradient(arguments, tokens, work=3 * h.numel() * reads.outputs)
        return None, None, None, gradient, of_previous, *found


class _Write(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, library: Kernels, h: Tensor, mix: Tensor, f: Tensor) -> Tensor:
        ctx.library = library
        ctx.save_for_backward(mix, f)
        return _write(library, h, mix, f)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
        mix, f = ctx.saved_tensors
        check_first_order()
        gradient, token, stream = distances(given[0])
        if isinstance(ctx.library, TritonKernels):
            return None, given[0], *ctx.library.streams.write_gradient(gradient, (token, stream), mix, f)
        of_mix, of_f = torch.empty_like(mix), torch.empty_like(f)
        arguments = _WRITE_BACKWARD.pack(
            mix.data_ptr(), f.data_ptr(), gradient.data_ptr(), of_mix.data_ptr(), of_f.data_ptr(), token, stream,
            *_sizes(gradient, mix, f),
        )  # fmt: skip
        ctx.library.write_streams_gradient(arguments, mix.shape[:-1].numel(), work=gradient.numel())
        return None, given[0], of_mix, of_f  # the gradients of h and R: see `_Read`
