"""The compiled kernels: their file, the processor's instructions that they use, and their arguments.

They are compiled during rskip's installation if there is a C compiler. They do not depend on PyTorch, which is used if
they are missing. The environment variable RSKIP_NATIVE limits the instructions: off, plain, avx2, avx512 or avx512bf16
(default: all that the processor has).
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from rskip.cpu.binary import check_binary
from rskip.settings.errors import SettingError

VARIABLE = "RSKIP_NATIVE"
TYPES = {torch.float32: 0, torch.bfloat16: 1}
BLOCK = 64  # logits per block; the kernel stores each block's maximum
WORK_TO_SHARE = 2**20  # minimum number of values to use threads: they take about 0.3 ms, and starting a thread 0.04 ms
_INSTRUCTIONS = {"plain": 0, "avx2": 1, "avx512": 2, "avx512bf16": 3}


_ROWS = None  # type of pointers to values whose type is the structure's `type`


def _pointers(names: str, dtype: torch.dtype | None = _ROWS) -> dict[str, torch.dtype | None]:
    return dict.fromkeys(names.split(), dtype)


def _fields(pointers: Iterable[str], sizes: str, numbers: str = "", *, typed: bool = True) -> list[tuple[str, Any]]:
    kinds = ((pointers, c_void_p), (sizes.split(), c_int64), (numbers.split(), c_double), (["type"] * typed, c_int64))
    return [(name, kind) for names, kind in kinds for name in names]


class Arguments(ctypes.Structure):
    """Arguments of a kernel. They keep the targets of their pointers alive.

    Tensors, structures and arrays live as long as the arguments that point to them. The first tensor of rows sets
    `type`. If an address is assigned as a number, the caller must keep its target alive. `_structure` is its name in
    source/kernels.h; a library whose structures differ is refused.
    """

    _structure: ClassVar[str]
    _pointers: ClassVar[dict[str, torch.dtype | None]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        for name, value in values.items():
            if value is None or isinstance(value, (int, float)):
                setattr(self, name, value)
            else:
                self.point(name, value)

    def point(self, name: str, target: torch.Tensor | ctypes.Structure | ctypes.Array) -> None:
        """Makes the pointer `name` point to `target`, and releases the previous target.

        :raises TypeError: the kernel can't read the tensor: it has another type, or is not contiguous or not on the
            CPU.
        """
        if isinstance(target, torch.Tensor):
            self._check(name, target)
            setattr(self, name, target.data_ptr())
            target = target if type(target) is torch.Tensor else target.detach()  # a parameter's storage may change
        else:
            setattr(self, name, ctypes.addressof(target))
        self.__dict__[name] = target

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        expected = self._pointers[name]
        if expected is _ROWS:
            expected = self.__dict__.get("rows")
            if expected is None:
                expected = self.__dict__["rows"] = tensor.dtype if tensor.dtype in TYPES else torch.float32
                self.type = TYPES[expected]
        if tensor.dtype != expected:
            raise TypeError(f"{name} has the type {tensor.dtype}: expected {expected}")
        if not (tensor.is_cpu and tensor.is_contiguous()):
            raise TypeError(f"{name} is not a contiguous tensor on the CPU: give {name}.cpu().contiguous()")


class Seen(Arguments):
    """The slots of keys and values that each sentence's beams attend to."""

    _structure = "seen"
    _pointers = _pointers("place slots counts", torch.int32)
    _fields_ = _fields(_pointers, "slots_sentence slots_beam beams count", typed=False)


class Attention(Arguments):
    """Attention of one position per beam over the beam's slots."""

    _structure = "attention"
    _pointers = _pointers("seen query key value new_key new_value output") | _pointers("weights", torch.float32)
    _fields_ = _fields(_pointers, "slots_per_place weights_beam heads features")


class Residual(Arguments):
    """A connection with its normalisations; `weights` and `biases` are arrays of addresses."""

    _structure = "residual"
    _pointers = _pointers("x f output weights biases")
    _fields_ = _fields(_pointers, "features norms", "scale branch_scale epsilon")


class Linear(Arguments):
    """A linear map."""

    _structure = "linear"
    _pointers = _pointers("x") | _pointers("weight", torch.uint8) | _pointers("bias output")
    _fields_ = _fields(_pointers, "inputs outputs activation")


class Packing(Arguments):
    """Packs a linear map's weight into the layout that its product reads."""

    _structure = "packing"
    _pointers = _pointers("weight") | _pointers("packed", torch.uint8)
    _fields_ = _fields(_pointers, "inputs outputs")


class Packing8(Packing):
    """Packs an 8-bit weight."""

    _pointers = Packing._pointers | _pointers("weight", torch.int8)


class Embedding(Arguments):
    """Embeddings of tokens and of their positions."""

    _structure = "embedding"
    _pointers = (
        _pointers("tokens", torch.int64) | _pointers("table") | _pointers("places", torch.int64)
        | _pointers("positions output")
    )  # fmt: skip
    _fields_ = _fields(_pointers, "features", "scale")


class Vocabulary(Arguments):
    """The pass over the logits, which gives maxima and normalisers."""

    _structure = "vocabulary"
    _pointers = _pointers("logits") | _pointers("maxima normalisers", torch.float32)
    _fields_ = _fields(_pointers, "words")


class Best(Arguments):
    """The search for the best continuations."""

    _structure = "candidates"
    _pointers = (
        _pointers("logits") | _pointers("maxima offsets scores", torch.float32) | _pointers("beams tokens", torch.int64)
    )
    _fields_ = _fields(_pointers, "count width words")


class CrossEntropy(Arguments):
    """Cross-entropy, with its gradient if `with_gradient` is set."""

    _structure = "cross_entropy"
    _pointers = (
        _pointers("logits") | _pointers("labels", torch.int64) | _pointers("normalisers nll", torch.float32)
    )
    _fields_ = _fields(_pointers, "words with_gradient", "confidence")


class LogSoftmax(Arguments):
    """Log-softmax and its gradient."""

    _structure = "log_softmax"
    _pointers = _pointers("logits") | _pointers("log_probabilities gradient", torch.float32)
    _fields_ = _fields(_pointers, "words")


class Linear8(Arguments):
    """An 8-bit linear map."""

    _structure = "linear8"
    _pointers = (
        _pointers("x", torch.float32) | _pointers("weight", torch.uint8) | _pointers("scales bias", torch.float32)
        | _pointers("offsets", torch.int32) | _pointers("output", torch.float32)
    )  # fmt: skip
    _fields_ = _fields(_pointers, "inputs outputs activation")


ATTEND, RESIDUAL, MAP, EMBED, MAP8, JOIN, GATE = range(7)
IDENTITY, RELU, TANH = range(3)  # activations of linear maps
SCALING, HIGHWAY, SHORTCUT = range(3)  # forms of `Gating`
GOES_ON, FINISHED, NOT_NUMBERS, NO_MEMORY = range(4)  # results of a search's step
_CONSTANTS = {
    "FLOAT32": TYPES[torch.float32], "BFLOAT16": TYPES[torch.bfloat16], "BLOCK": BLOCK,
    "GOES_ON": GOES_ON, "FINISHED": FINISHED, "NOT_NUMBERS": NOT_NUMBERS, "NO_MEMORY": NO_MEMORY,
    "ATTEND": ATTEND, "RESIDUAL": RESIDUAL, "MAP": MAP, "EMBED": EMBED, "MAP8": MAP8,
    "JOIN": JOIN, "GATE": GATE, "IDENTITY": IDENTITY, "RELU": RELU, "TANH": TANH,
    "SCALING": SCALING, "HIGHWAY": HIGHWAY, "SHORTCUT": SHORTCUT,
}  # fmt: skip


class Joining(Arguments):
    """Rows (x, f) of 2C features from x and f of C."""

    _structure = "joining"
    _pointers = _pointers("x f output")
    _fields_ = _fields(_pointers, "features")


class Gating(Arguments):
    """A connection with gates, from their values before the sigmoid."""

    _structure = "gating"
    _pointers = _pointers("x f n alpha beta gamma output")
    _fields_ = _fields(_pointers, "features width form")


class Operation(Arguments):
    """A kernel and its arguments."""

    _structure = "operation"
    _fields_ = [("arguments", c_void_p), ("kernel", c_int64)]


class Operations(Arguments):
    """Operations that run in sequence, on sentences with `beams` beams each."""

    _structure = "program"
    _fields_ = [("operations", c_void_p), ("count", c_int64), ("beams", c_int64)]

    def __init__(self, operations: list[Operation]) -> None:
        table = (Operation * len(operations))(*operations)
        super().__init__(operations=table, count=len(table))
        self.copied = operations  # keeps them alive: the table holds only addresses


class SearchSettings(Arguments):
    """The settings of a search; `limits` and `prefixes` are arrays of 64-bit integers, which the search copies."""

    _structure = "search_settings"
    _pointers = _pointers("limits prefixes", torch.int64)
    _fields_ = _fields(
        _pointers, "sentences beams words prefix start end padding unknown min_length ngram gnmt source "
        "sampling top_k seed", "length_penalty unknown_penalty temperature top_p", typed=False,
    )  # fmt: skip


class FoundHypothesis(Arguments):
    """What a search tells of a finished hypothesis. Pointers that are set receive its values."""

    _structure = "hypothesis"
    _pointers = _pointers("tokens", torch.int64) | _pointers("token_scores attention", torch.float32)
    _fields_ = _fields(_pointers, "length", "score", typed=False)


class SearchView(Arguments):
    """The beams that a search goes on with. The addresses are those of the search's own memory until its next step."""

    _structure = "search_view"
    _fields_ = _fields(["tokens", "parents", "rows"], "count width length", typed=False)


class Decoding(Arguments):
    """A decoder whose whole step is one program, for `search_run`."""

    _structure = "decoding"
    _pointers = (
        _pointers("program embedding") | _pointers("places", torch.int64) | _pointers("target memory targets memories")
        | _pointers("keys values") | _pointers("source_slots source_counts", torch.int32) | _pointers("output")
    )  # fmt: skip
    _fields_ = _fields(_pointers, "layers features source first_place known rows_to_share")


def addresses(targets: Sequence[torch.Tensor | Arguments]) -> ctypes.Array:
    """An array of the addresses of tensors or arguments, which keeps them alive."""
    array = (c_void_p * len(targets))()
    for index, each in enumerate(targets):
        array[index] = each.data_ptr() if isinstance(each, torch.Tensor) else ctypes.addressof(each)
    kept = [each.detach() if isinstance(each, torch.Tensor) else each for each in targets]
    array.pointed_at = kept  # type: ignore[attr-defined]
    return array


class Library:
    """The kernels of one file. Each is called with its arguments and the number of sentences or rows.

    `work` is the approximate number of values that a kernel reads. If it is large, the kernel is shared among PyTorch's
    threads.
    """

    def __init__(self, path: Path, most: int) -> None:
        check_binary(path)
        functions = ctypes.CDLL(str(path))
        if not hasattr(functions, "rskip_layout") or _compiled_layout(functions) != _layout():
            raise OSError("it was compiled from the source of another version")
        functions.rskip_instructions.restype = c_char_p
        self.attend = _kernel(functions, "attend", Attention)
        self.residual = _kernel(functions, "residual", Residual)
        self.map = _kernel(functions, "map", Linear)
        self.normalise = _kernel(functions, "normalise", Vocabulary)
        self.best = _kernel(functions, "best", Best)
        self.cross_entropy = _kernel(functions, "cross_entropy", CrossEntropy)
        self.log_softmax = _kernel(functions, "log_softmax", LogSoftmax)
        self.log_softmax_gradient = _kernel(functions, "log_softmax_gradient", LogSoftmax)
        self.all_below = _declared(functions, "all_below", [c_void_p, c_int64, c_int64], c_int)
        self.open_slots = _declared(functions, "open_slots", [c_void_p, *[c_int64] * 5, c_void_p], c_int)
        self.reorder_slots = _declared(functions, "reorder_slots", [*[c_void_p] * 4, *[c_int64] * 5])
        self.run = _kernel(functions, "run", Operations)
        self.pack = _declared(functions, "pack", [POINTER(Packing)])
        self.map8 = _kernel(functions, "map8", Linear8)
        self.pack8 = _declared(functions, "pack8", [POINTER(Packing)])
        self.packed_bytes8 = _declared(functions, "packed_bytes8", [c_int64] * 2, c_int64)
        self.packed_bytes = _declared(functions, "packed_bytes", [c_int64] * 3, c_int64)
        self.search_new = _declared(functions, "search_new", [POINTER(SearchSettings)], c_void_p)
        self.search_free = _declared(functions, "search_free", [c_void_p])
        self.search_step = _declared(functions, "search_step", [c_void_p, c_void_p, c_int64, c_void_p, c_int64], c_int)
        self.search_run = _declared(functions, "search_run", [c_void_p, POINTER(Decoding), c_int64, c_int64], c_int)
        self.search_view = _declared(functions, "search_view", [c_void_p, POINTER(SearchView)])
        self.search_found = _declared(functions, "search_found", [c_void_p, c_int64], c_int64)
        self.search_hypothesis = _declared(
            functions, "search_hypothesis", [c_void_p, c_int64, c_int64, POINTER(FoundHypothesis)]
        )
        functions.rskip_choose(most)
        self.largest_weight: int = _declared(functions, "largest_weight", [], c_int64)()  # for 8-bit products
        self.instructions: str = functions.rskip_instructions().decode()


class _Field(ctypes.Structure):
    _fields_ = [("structure", c_char_p), ("name", c_char_p), ("offset", c_int64), ("size", c_int64)]


_Layout = dict[tuple[str, str], tuple[int, int]]  # (structure, field) -> (offset, size); "" for a structure's own size


def _compiled_layout(functions: ctypes.CDLL) -> _Layout:
    """The structures and constants of the library (source/layout.c)."""
    count = c_int64()
    table = _declared(functions, "layout", [POINTER(c_int64)], POINTER(_Field))(count)
    return {(each.structure.decode(), each.name.decode()): (each.offset, each.size) for each in table[: count.value]}


def _layout() -> _Layout:
    """The same of this module."""
    layout = {("", name): (value, 0) for name, value in _CONSTANTS.items()}
    for kind in Arguments.__subclasses__():
        layout[kind._structure, ""] = 0, ctypes.sizeof(kind)
        for name in (each[0] for each in kind._fields_):
            layout[kind._structure, name] = getattr(kind, name).offset, getattr(kind, name).size
    return layout


def _declared(functions: ctypes.CDLL, name: str, arguments: list, result: type | None = None) -> Any:
    function = getattr(functions, f"rskip_{name}")
    function.argtypes, function.restype = arguments, result
    return function


def _kernel(functions: ctypes.CDLL, name: str, arguments: type[ctypes.Structure]) -> Callable[..., None]:
    return partial(_in_threads, _declared(functions, name, [POINTER(arguments), c_int64, c_int64]))


def _in_threads(kernel: Any, arguments: Arguments, count: int, *, work: int = 0) -> None:
    kernel(arguments, count, torch.get_num_threads() if work >= WORK_TO_SHARE else 1)


@dataclass(frozen=True)
class Found:
    """The library, or the reason why it is missing."""

    library: Library | None
    problem: str = ""


@cache
def find_library() -> Found:
    """Loads the compiled kernels, once.

    :raises SettingError: RSKIP_NATIVE has an unknown value.
    """
    wanted = os.environ.get(VARIABLE, "").lower() or "avx512bf16"
    if wanted == "off":
        return Found(None, f"{VARIABLE}=off")
    if wanted not in _INSTRUCTIONS:
        raise SettingError.of_value(VARIABLE, wanted, f"one of off, {', '.join(_INSTRUCTIONS)}")
    files = sorted(Path(__file__).parent.glob("_kernels*.so"))
    if not files:
        return Found(None, "they were not compiled: install a C compiler (gcc or clang), then rskip again")
    try:
        return Found(Library(files[0], _INSTRUCTIONS[wanted]))
    except (OSError, AttributeError) as error:
        reason = str(error).removeprefix(f"{files[0]}: ")
        problem = f"{files[0]} can't be used ({reason}): install rskip again"
        warnings.warn(f"PyTorch computes without the compiled kernels, more slowly: {problem}", stacklevel=2)
        return Found(None, problem)


def native_library(tensor: torch.Tensor) -> Library | None:
    """The kernels, or None if they are missing or the tensor is not contiguous float32 or bfloat16 on a CPU."""
    suits = tensor.dtype in TYPES and tensor.device.type == "cpu" and tensor.is_contiguous()
    return find_library().library if suits else None


def checked_indices(library: Library, indices: torch.Tensor, count: int, what: str) -> torch.Tensor:
    """Converts indices for the kernels, to contiguous int64.

    :param what: name of the indices in errors.
    :raises TypeError: the indices are not integers on the CPU.
    :raises IndexError: an index is below 0, or not below `count`.
    """
    if indices.dtype != torch.int64:
        if indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
            raise TypeError(f"{what} have the type {indices.dtype}: expected integers")
        indices = indices.long()
    if not indices.is_cpu:
        raise TypeError(f"{what} are on {indices.device}: expected the CPU, where the model is")
    indices = indices.contiguous()
    if not library.all_below(indices.data_ptr(), indices.numel(), count):
        outside = indices[(indices < 0) | (indices >= count)][0].item()
        raise IndexError(f"{what} include {outside}: expected 0 to {count - 1}")
    return indices
