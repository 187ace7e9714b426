"""The arguments of the compiled kernels, as structures of ctypes, which are read from source/kernels.h.

They point to arrays of NumPy or tensors of PyTorch. This module imports neither. NumPy has no bfloat16; its arrays of
16-bit unsigned integers stand for it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import Any, ClassVar

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
_POINTED_AT = {"float": "float32", "int32_t": "int32", "int64_t": "int64", "uint8_t": "uint8"}
_HEADER = re.sub(
    r"/\*.*?\*/", "", (Path(__file__).parent / "source/kernels.h").read_text(encoding="utf-8"), flags=re.DOTALL
)
_STRUCTURES: dict[str, str] = dict(re.findall(r"^struct (\w+) \{\n(.*?)\n\};", _HEADER, re.DOTALL | re.MULTILINE))
# types, kernels, activations, forms of `Gating`, and results of a search's step
constants = SimpleNamespace(**{name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", _HEADER)})
TYPES = {"float32": constants.FLOAT32, "bfloat16": constants.BFLOAT16}


def _stated(name: str) -> tuple[str, dict[str, str | None], list[tuple[str, Any]]]:
    """A structure's name, the types of values that its pointers point to, and its fields, from the header."""
    pointers: dict[str, str | None] = {}
    fields: list[tuple[str, Any]] = []
    for kind, declared in re.findall(r"^ +(?:const )?(?:struct )?(\w+) (.+?);", _STRUCTURES[name], re.MULTILINE):
        for each in declared.split(", "):
            field = each.rpartition("*")[2]
            if field != each:
                pointers[field] = _POINTED_AT.get(kind, _ROWS)
            fields.append((field, c_void_p if field in pointers else c_double if kind == "double" else c_int64))
    return name, pointers, fields


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

    def __init__(self, *numbers: float | None, **values: Any) -> None:
        super().__init__(*numbers)
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

    _structure, _pointers, _fields_ = _stated("seen")


class Attention(Arguments):
    """Attention of one position per beam over the beam's slots."""

    _structure, _pointers, _fields_ = _stated("attention")


class Residual(Arguments):
    """A connection with its normalisations; `weights` and `biases` are arrays of addresses."""

    _structure, _pointers, _fields_ = _stated("residual")


class Linear(Arguments):
    """A linear map."""

    _structure, _pointers, _fields_ = _stated("linear")


class Packing(Arguments):
    """Packs a linear map's weight into the layout that its product reads."""

    _structure, _pointers, _fields_ = _stated("packing")


class Packing8(Packing):
    """Packs an 8-bit weight."""

    _pointers = Packing._pointers | {"weight": "int8"}


class Embedding(Arguments):
    """Embeddings of tokens and of their positions."""

    _structure, _pointers, _fields_ = _stated("embedding")


class CrossEntropy(Arguments):
    """Cross-entropy, with its gradient if `with_gradient` is set."""

    _structure, _pointers, _fields_ = _stated("cross_entropy")


class LogSoftmax(Arguments):
    """Log-softmax and its gradient."""

    _structure, _pointers, _fields_ = _stated("log_softmax")


class Linear8(Arguments):
    """An 8-bit linear map."""

    _structure, _pointers, _fields_ = _stated("linear8")


class Joining(Arguments):
    """Rows (x, f) of 2C features from x and f of C."""

    _structure, _pointers, _fields_ = _stated("joining")


class Gating(Arguments):
    """A connection with gates, from their values before the sigmoid."""

    _structure, _pointers, _fields_ = _stated("gating")


class Reading(Arguments):
    """A token's weights from its streams, and the branch's input; with their gradients."""

    _structure, _pointers, _fields_ = _stated("reading")


class Writing(Arguments):
    """The streams after a branch, with their gradients."""

    _structure, _pointers, _fields_ = _stated("writing")


class Attending(Arguments):
    """Attention over depth, with its gradients."""

    _structure, _pointers, _fields_ = _stated("attending")


class Scaling(Arguments):
    """Self-adaptive scaling, with its gradients."""

    _structure, _pointers, _fields_ = _stated("scaling")


class Gated(Arguments):
    """GatedResidual's streams, with their gradients."""

    _structure, _pointers, _fields_ = _stated("gated")


class Operation(Arguments):
    """A kernel and its arguments."""

    _structure, _pointers, _fields_ = _stated("operation")


class Operations(Arguments):
    """Operations that run in sequence, on sentences with `beams` beams each."""

    _structure, _pointers, _fields_ = _stated("program")

    def __init__(self, operations: list[Operation]) -> None:
        table = (Operation * len(operations))(*operations)
        super().__init__(operations=table, count=len(table))
        self.copied = operations  # keeps them alive: the table holds only addresses


class SearchSettings(Arguments):
    """The settings of a search; `limits` and `prefixes` are arrays of 64-bit integers, which the search copies."""

    _structure, _pointers, _fields_ = _stated("search_settings")


class FoundHypothesis(Arguments):
    """What a search tells of a finished hypothesis. Pointers that are set receive its values."""

    _structure, _pointers, _fields_ = _stated("hypothesis")


class SearchView(Arguments):
    """The beams that a search goes on with. The addresses are those of the search's own memory until its next step."""

    _structure, _pointers, _fields_ = _stated("search_view")


class Decoding(Arguments):
    """A decoder whose whole step is one program, for `search_run`."""

    _structure, _pointers, _fields_ = _stated("decoding")


_PRODUCTS_A_NUMBER = 16  # number of products that take as long as reading one value


def packing(kind: type[Arguments], *names: str) -> Struct:
    """Packs these fields of a structure, given in its order, where ctypes would take five times as long.

    The other fields are 0.
    """
    fields: Any = kind._fields_
    kept = list(names)
    codes = [("d" if field is c_double else "q") if name in kept else "8x" for name, field in fields]
    assert kept == [name for name, _ in fields if name in kept], f"not in the order of {kind._structure}"
    return Struct("".join(codes))


def linear_work(arguments: Linear | Linear8) -> int:
    """The cost of one row, in values read."""
    work: int = arguments.inputs * arguments.outputs // _PRODUCTS_A_NUMBER
    return work


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
    found = {("", name): (value, 0) for name, value in vars(constants).items()}
    return found | {(kind._structure, ""): (0, ctypes.sizeof(kind)) for kind in Arguments.__subclasses__()}
