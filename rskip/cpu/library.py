"""The compiled kernels: their file, and the processor's instructions that they use.

They are compiled during rskip's installation if there is a C compiler. They do not depend on PyTorch, which is used if
they are missing. The environment variable RSKIP_NATIVE limits the instructions: off, plain, avx2, avx512 or avx512bf16
(default: all that the processor has).
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rskip
from rskip.cpu.structures import (
    TYPES,
    Arguments,
    Attending,
    Attention,
    CrossEntropy,
    Decoding,
    FoundHypothesis,
    Layout,
    Linear,
    Linear8,
    LogSoftmax,
    Operations,
    Packing,
    Residual,
    SearchSettings,
    SearchView,
    address,
    kind_of,
    layout,
)
from rskip.cpu.threads import threads
from rskip.extras import has_torch
from rskip.settings.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

VARIABLE = "RSKIP_NATIVE"
WORK_TO_SHARE = 2**20  # minimum number of values to use threads: they take about 0.3 ms, starting a thread up to 0.04
_INSTRUCTIONS = {"plain": 0, "avx2": 1, "avx512": 2, "avx512bf16": 3}


class Library:
    """The kernels of one file. Each is called with its arguments and the number of sentences or rows.

    `work` is the approximate number of values that a kernel reads. If it is large, the kernel is shared among threads
    (`rskip.cpu.threads`).
    """

    def __init__(self, path: Path, most: int) -> None:
        functions = ctypes.CDLL(str(path))
        if not hasattr(functions, "rskip_layout") or not layout().items() <= _compiled_layout(functions).items():
            raise OSError("it was compiled from the source of another version")
        functions.rskip_instructions.restype = c_char_p
        self.attend = _kernel(functions, "attend", Attention)
        self.residual = _kernel(functions, "residual", Residual)
        self.map = _kernel(functions, "map", Linear)
        self.cross_entropy = _kernel(functions, "cross_entropy", CrossEntropy)
        self.log_softmax = _kernel(functions, "log_softmax", LogSoftmax)
        self.log_softmax_gradient = _kernel(functions, "log_softmax_gradient", LogSoftmax)
        self.read_streams = _kernel(functions, "read_streams", None)
        self.read_streams_gradient = _kernel(functions, "read_streams_gradient", None)
        self.write_streams = _kernel(functions, "write_streams", None)
        self.write_streams_gradient = _kernel(functions, "write_streams_gradient", None)
        self.attend_depth = _kernel(functions, "attend_depth", Attending)
        self.attend_depth_gradient = _kernel(functions, "attend_depth_gradient", Attending)
        self.scale = _kernel(functions, "scale", None)
        self.scale_gradient = _kernel(functions, "scale_gradient", None)
        self.gate_streams = _kernel(functions, "gate_streams", None)
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
        functions.rskip_choose(most, rskip.forked)
        self.chunk: int = _declared(functions, "chunk", [], c_int64)()  # what features of streams are a multiple of
        self.largest_weight: int = _declared(functions, "largest_weight", [], c_int64)()  # for 8-bit products
        self.largest_row: int = _declared(functions, "largest_row", [], c_int64)()  # that a row's values become
        self.instructions: str = functions.rskip_instructions().decode()


class _Field(ctypes.Structure):
    _fields_ = [("structure", c_char_p), ("name", c_char_p), ("offset", c_int64), ("size", c_int64)]


def _compiled_layout(functions: ctypes.CDLL) -> Layout:
    """The structures and constants of the library (source/layout.c)."""
    count = c_int64()
    table = _declared(functions, "layout", [POINTER(c_int64)], POINTER(_Field))(count)
    return {(each.structure.decode(), each.name.decode()): (each.offset, each.size) for each in table[: count.value]}


def _declared(functions: ctypes.CDLL, name: str, arguments: list, result: type | None = None) -> Any:
    function = getattr(functions, f"rskip_{name}")
    function.argtypes, function.restype = arguments, result
    return function


def _kernel(functions: ctypes.CDLL, name: str, arguments: type[ctypes.Structure] | None) -> Callable[..., None]:
    """The function of a kernel. Without `arguments` it takes their bytes (`rskip.cpu.structures.packing`)."""
    given = c_char_p if arguments is None else POINTER(arguments)
    return partial(_in_threads, _declared(functions, name, [given, c_int64, c_int64]))


def _in_threads(kernel: Any, arguments: Arguments | bytes, count: int, *, work: int = 0) -> None:
    kernel(arguments, count, threads() if work >= WORK_TO_SHARE else 1)


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
    files = sorted(Path(__file__).parent.glob("_kernels*.so")) or _installed_files()
    if not files:
        return Found(None, "the kernels were not compiled: install a C compiler (gcc or clang), then rskip again")
    try:
        return Found(Library(files[0], _INSTRUCTIONS[wanted]))
    except (OSError, AttributeError) as error:
        reason = str(error).removeprefix(f"{files[0]}: ")
        problem = f"{files[0]} can't be used ({reason}): install rskip again"
        if has_torch():
            effect = "the compiled kernels were not loaded, so PyTorch computes more slowly"
            warnings.warn(f"{effect}: {problem}", stacklevel=2)
        return Found(None, problem)


def _installed_files() -> list[Path]:
    """The kernels of the installed rskip, for Python in the root of a clone, which imports the clone's modules."""
    from importlib import metadata  # takes 20 ms

    files = [file for found in metadata.distributions(name="rskip") for file in found.files or ()]
    paths = [Path(str(file.locate())) for file in files if file.match("rskip/cpu/_kernels*.so")]
    return [path for path in paths if path.exists()]


def native_library(tensor: Tensor) -> Library | None:
    """The kernels, or None if they are missing or the tensor is not contiguous float32 or bfloat16 on a CPU."""
    suits = kind_of(tensor) in TYPES and tensor.device.type == "cpu" and tensor.is_contiguous()
    return find_library().library if suits else None


def checked_indices(library: Library, indices: Tensor, count: int, what: str) -> Tensor:
    """Converts indices for the kernels, to contiguous int64.

    :param what: name of the indices in errors.
    :raises TypeError: the indices are not integers on the CPU.
    :raises IndexError: an index is below 0, or not below `count`.
    """
    if not indices.is_cpu or not kind_of(indices).startswith(("int", "uint")):
        raise TypeError(f"{what} are {indices.dtype} on {indices.device}: expected integers on the CPU")
    indices = indices.long().contiguous()
    if not library.all_below(address(indices), indices.numel(), count):
        outside = indices[(indices < 0) | (indices >= count)][0].item()
        raise IndexError(f"{what} include {outside}: expected 0 to {count - 1}")
    return indices


def library_for_int8() -> Library:
    """The kernels, which compute 8-bit products here.

    :raises ValueError: they are missing, or this processor has no exact 8-bit products. PyTorch has none either.
    """
    found = find_library()
    if found.library is not None and found.library.largest_weight:
        return found.library
    reason = found.problem or "the kernels have no exact 8-bit products on this processor"
    raise ValueError(f"int8 can't be used: {reason}; use float32 or bfloat16")
