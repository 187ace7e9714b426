"""The arguments of the compiled kernels, as structures of ctypes (source/kernels.h).

They point to arrays of NumPy or tensors of PyTorch. This module imports neither. NumPy has no bfloat16; its arrays of
16-bit unsigned integers stand for it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Sequence
from ctypes import c_double, c_int64, c_void_p
from typing import Any, ClassVar

TYPES = {"float32": 0, "bfloat16": 1}
_CTYPES = (ctypes.Structure, ctypes.Array)


def kind_of(array: Any) -> str:
    """The type of an array's or a tensor's values, such as "float32"."""
    kind = str(array.dtype).removeprefix("torch.")
    return "bfloat16" if kind == "uint16" else kind


def address(array: Any) -> int:
    """The address of an array's or a tensor's first value."""
    found: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return found


def room(like: Any, *shape: int) -> Any:
    """Memory of this shape for values of the same type, as a tensor if `like` is one.

    The tensor may be written to within and outside of inference mode.
    """
    if hasattr(like, "new_empty"):
        with sys.modules["torch"].inference_mode(False):
            return like.new_empty(shape)
    return type(like)(shape, like.dtype)  # an array of NumPy


def is_plain(array: Any) -> bool:
    """Whether the values are contiguous and on the CPU."""
    if hasattr(array, "data_ptr"):
        return bool(array.is_cpu and array.is_contiguous())
    return bool(array.flags.c_contiguous)


_ROWS = None  # type of pointers to values whose type is the structure's `type`


def _pointers(names: str, kind: str | None = _ROWS) -> dict[str, str | None]:
    return dict.fromkeys(names.split(), kind)


def _fields(pointers: Iterable[str], sizes: str, numbers: str = "", *, typed: bool = True) -> list[tuple[str, Any]]:
    kinds = ((pointers, c_void_p), (sizes.split(), c_int64), (numbers.split(), c_double), (["type"] * typed, c_int64))
    return [(name, kind) for names, kind in kinds for name in names]


def _kept(target: Any) -> Any:
    """What keeps a target alive. A parameter does not: its storage may be replaced."""
    return target.detach() if type(target).__name__ == "Parameter" else target


class Arguments(ctypes.Structure):
    """Arguments of a kernel. They keep the targets of their pointers alive.

    Arrays, tensors and structures live as long as the arguments that point to them. The first array of rows sets
    `type`. If an address is assigned as a number, the caller must keep its target alive. `_structure` is its name in
    source/kernels.h; a library whose structures differ is refused.
    """

    _structure: ClassVar[str]
    _pointers: ClassVar[dict[str, str | None]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        for name, value in values.items():
            if value is None or isinstance(value, (int, float)):
                setattr(self, name, value)
            else:
                self.point(name, value)

    def point(self, name: str, target: Any) -> None:
        """Makes the pointer `name` point to an array, a tensor, a structure or an array of ctypes.

        The previous target is released.

        :raises TypeError: the kernel can't read the array: it has another type, or is not contiguous or not on the CPU.
        """
        if isinstance(target, _CTYPES):
            setattr(self, name, ctypes.addressof(target))
        else:
            self._check(name, target)
            setattr(self, name, address(target))
            target = _kept(target)
        self.__dict__[name] = target

    def _check(self, name: str, array: Any) -> None:
        kind, expected = kind_of(array), self._pointers[name]
        if expected is _ROWS:
            expected = self.__dict__.get("rows")
            if expected is None:
                expected = self.__dict__["rows"] = kind if kind in TYPES else "float32"
                self.type = TYPES[expected]
        if kind != expected or not is_plain(array):
            raise TypeError(f"{name} has the type {kind}: expected {expected}, contiguous and on the CPU")


class Seen(Arguments):
    """The slots of keys and values that each sentence's beams attend to."""

    _structure = "seen"
    _pointers = _pointers("place slots counts", "int32")
    _fields_ = _fields(_pointers, "slots_sentence slots_beam beams count", typed=False)


class Attention(Arguments):
    """Attention of one position per beam over the beam's slots."""

    _structure = "attention"
    _pointers = _pointers("seen query key value new_key new_value output") | _pointers("weights", "float32")
    _fields_ = _fields(_pointers, "slots_per_place weights_beam heads features")


class Residual(Arguments):
    """A connection with its normalisations; `weights` and `biases` are arrays of addresses."""

    _structure = "residual"
    _pointers = (
        _pointers("x f output") | _pointers("scales branch_scales shares", "float32") | _pointers("weights biases")
    )
    _fields_ = _fields(_pointers, "features norms parts", "scale branch_scale epsilon")


class Linear(Arguments):
    """A linear map."""

    _structure = "linear"
    _pointers = _pointers("x") | _pointers("weight", "uint8") | _pointers("bias output")
    _fields_ = _fields(_pointers, "inputs outputs activation")


class Packing(Arguments):
    """Packs a linear map's weight into the layout that its product reads."""

    _structure = "packing"
    _pointers = _pointers("weight") | _pointers("packed", "uint8")
    _fields_ = _fields(_pointers, "inputs outputs")


class Packing8(Packing):
    """Packs an 8-bit weight."""

    _pointers = Packing._pointers | _pointers("weight", "int8")


class Embedding(Arguments):
    """Embeddings of tokens and of their positions."""

    _structure = "embedding"
    _pointers = (
        _pointers("tokens", "int64") | _pointers("table") | _pointers("places", "int64")
        | _pointers("positions output")
    )  # fmt: skip
    _fields_ = _fields(_pointers, "features packed", "scale")


class CrossEntropy(Arguments):
    """Cross-entropy, with its gradient if `with_gradient` is set."""

    _structure = "cross_entropy"
    _pointers = (
        _pointers("logits") | _pointers("labels", "int64") | _pointers("normalisers nll", "float32")
    )
    _fields_ = _fields(_pointers, "words with_gradient", "confidence")


class LogSoftmax(Arguments):
    """Log-softmax and its gradient."""

    _structure = "log_softmax"
    _pointers = _pointers("logits") | _pointers("log_probabilities gradient", "float32")
    _fields_ = _fields(_pointers, "words")


class Linear8(Arguments):
    """An 8-bit linear map."""

    _structure = "linear8"
    _pointers = (
        _pointers("x", "float32") | _pointers("weight", "uint8") | _pointers("scales bias", "float32")
        | _pointers("offsets", "int32") | _pointers("output", "float32") | _pointers("scanning")
    )  # fmt: skip
    _fields_ = _fields(_pointers, "inputs outputs activation")


_PRODUCTS_A_NUMBER = 16  # number of products that take as long as reading one value


def linear_work(arguments: Linear | Linear8) -> int:
    """The cost of one row, in values read."""
    work: int = arguments.inputs * arguments.outputs // _PRODUCTS_A_NUMBER
    return work


ATTEND, RESIDUAL, MAP, EMBED, MAP8, JOIN, GATE = range(7)
IDENTITY, RELU, TANH = range(3)  # activations of linear maps
SCALING, HIGHWAY, SHORTCUT, ORTHOGONAL, DELTA = range(5)  # forms of `Gating`
GOES_ON, FINISHED, NOT_NUMBERS, NO_MEMORY = range(4)  # results of a search's step
_CONSTANTS = {
    "FLOAT32": TYPES["float32"], "BFLOAT16": TYPES["bfloat16"],
    "GOES_ON": GOES_ON, "FINISHED": FINISHED, "NOT_NUMBERS": NOT_NUMBERS, "NO_MEMORY": NO_MEMORY,
    "ATTEND": ATTEND, "RESIDUAL": RESIDUAL, "MAP": MAP, "EMBED": EMBED, "MAP8": MAP8,
    "JOIN": JOIN, "GATE": GATE, "IDENTITY": IDENTITY, "RELU": RELU, "TANH": TANH,
    "SCALING": SCALING, "HIGHWAY": HIGHWAY, "SHORTCUT": SHORTCUT,
    "ORTHOGONAL": ORTHOGONAL, "DELTA": DELTA,
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
    _pointers = _pointers("limits prefixes", "int64")
    _fields_ = _fields(
        _pointers, "sentences beams words prefix start end padding unknown min_length ngram gnmt source "
        "sampling top_k seed", "length_penalty unknown_penalty temperature top_p", typed=False,
    )  # fmt: skip


class FoundHypothesis(Arguments):
    """What a search tells of a finished hypothesis. Pointers that are set receive its values."""

    _structure = "hypothesis"
    _pointers = _pointers("tokens", "int64") | _pointers("token_scores attention", "float32")
    _fields_ = _fields(_pointers, "length", "score", typed=False)


class SearchView(Arguments):
    """The beams that a search goes on with. The addresses are those of the search's own memory until its next step."""

    _structure = "search_view"
    _fields_ = _fields(["tokens", "parents", "rows"], "count width length", typed=False)


class Decoding(Arguments):
    """A decoder whose whole step is one program, for `search_run`."""

    _structure = "decoding"
    _pointers = (
        _pointers("program embedding") | _pointers("places", "int64") | _pointers("target memory targets memories")
        | _pointers("keys values") | _pointers("source_slots source_counts", "int32")
    )  # fmt: skip
    _fields_ = _fields(_pointers, "layers features source first_place known rows_to_share")


def addresses(targets: Sequence[Any]) -> ctypes.Array:
    """An array of the addresses of arrays, tensors or arguments, which keeps them alive."""
    table = (c_void_p * len(targets))()
    for index, each in enumerate(targets):
        table[index] = ctypes.addressof(each) if isinstance(each, _CTYPES) else address(each)
    table.pointed_at = [_kept(each) for each in targets]  # type: ignore[attr-defined]
    return table


Layout = dict[tuple[str, str], tuple[int, int]]  # ("", constant) -> (value, 0), (structure, "") -> (0, size)


def layout() -> Layout:
    """The sizes of the structures, and the constants. A library in which they differ is refused."""
    found = {("", name): (value, 0) for name, value in _CONSTANTS.items()}
    return found | {(kind._structure, ""): (0, ctypes.sizeof(kind)) for kind in Arguments.__subclasses__()}
