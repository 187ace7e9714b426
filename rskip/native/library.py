"""The compiled kernels: their file, the processor's instructions that they use, and their arguments.

Compiled where rskip is installed, if there is a C compiler; they need nothing of PyTorch, which serves without them.
The environment variable RSKIP_NATIVE bounds the instructions: off, plain, avx2, avx512 or
avx512bf16; by default all that there are.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from rskip.settings.errors import SettingError

VARIABLE = "RSKIP_NATIVE"
TYPES = {torch.float32: 0, torch.bfloat16: 1}  # as in source/kernels.h, which has all that follows too
BLOCK = 64  # logits whose largest one is kept
_INTERFACE = 5
_WORK_TO_SHARE = 2**20  # numbers, which take some 0.3 ms; to start a thread takes 0.05
_INSTRUCTIONS = {"plain": 0, "avx2": 1, "avx512": 2, "avx512bf16": 3}


def _fields(pointers: str, sizes: str, numbers: str = "", *, type: bool = True) -> list[tuple[str, Any]]:
    kinds = ((pointers, c_void_p), (sizes, c_int64), (numbers, c_double), ("type" if type else "", c_int64))
    return [(name, kind) for names, kind in kinds for name in names.split()]


class Seen(ctypes.Structure):
    """The slots of keys and values that the beams of each sentence see."""

    _fields_ = _fields("place slots counts", "slots_sentence slots_beam beams count", type=False)


class Attention(ctypes.Structure):
    """Of one position of each beam over the slots that it sees."""

    _fields_ = _fields(
        "seen query key value new_key new_value output weights", "slots_per_place weights_beam heads features"
    )


class Residual(ctypes.Structure):
    """Of a connection with its normalisations."""

    _fields_ = _fields("x f output weights biases", "features norms", "scale branch_scale epsilon")


class Linear(ctypes.Structure):
    """Of a linear map."""

    _fields_ = _fields("x weight bias output", "inputs outputs relu")


class Packing(ctypes.Structure):
    """Of a linear map's weight to how its product reads it."""

    _fields_ = _fields("weight packed", "inputs outputs")


class Embedding(ctypes.Structure):
    """Of tokens and their positions."""

    _fields_ = _fields("tokens table places positions output", "features", "scale")


class Vocabulary(ctypes.Structure):
    """Of the pass over the logits."""

    _fields_ = _fields("logits maxima normalisers", "words")


class Best(ctypes.Structure):
    """Of the search for the best continuations."""

    _fields_ = _fields("logits maxima offsets scores beams tokens", "count width words")


class CrossEntropy(ctypes.Structure):
    """Of a loss."""

    _fields_ = _fields("logits labels normalisers nll", "words with_gradient", "confidence")


class LogSoftmax(ctypes.Structure):
    """Of log-softmax and its gradient."""

    _fields_ = _fields("logits log_probabilities gradient", "words")


class Quantised(ctypes.Structure):
    """Of rows to 8 bits."""

    _fields_ = _fields("x output scales", "features")


class Linear8(ctypes.Structure):
    """Of a linear map in 8 bits."""

    _fields_ = _fields("x weight scales bias offsets output", "inputs outputs relu")


class Rescaled(ctypes.Structure):
    """Of 8-bit products' sums to what they stand for."""

    _fields_ = _fields("sums scales bias", "features")


ATTEND, RESIDUAL, MAP, EMBED, MAP8 = range(5)


class Operation(ctypes.Structure):
    """A kernel's arguments, and which kernel."""

    _fields_ = [("arguments", c_void_p), ("kernel", c_int64)]


class Operations(ctypes.Structure):
    """What is run one after the other, of sentences of so many beams."""

    _fields_ = [("operations", c_void_p), ("count", c_int64), ("beams", c_int64)]


class Library:
    """The kernels of one file. Each is called with its arguments and how many sentences or rows they are of.

    With `work`, about how many numbers are read, a kernel is shared among PyTorch's threads where that is worth it.
    """

    def __init__(self, path: Path, most: int) -> None:
        functions = ctypes.CDLL(str(path))
        if functions.rskip_interface() != _INTERFACE:
            raise OSError("it was compiled from another version's source")
        functions.rskip_instructions.restype = c_char_p
        self.attend = _kernel(functions, "attend", Attention)
        self.residual = _kernel(functions, "residual", Residual)
        self.map = _kernel(functions, "map", Linear)
        self.normalise = _kernel(functions, "normalise", Vocabulary)
        self.best = _kernel(functions, "best", Best)
        self.cross_entropy = _kernel(functions, "cross_entropy", CrossEntropy)
        self.quantise = _kernel(functions, "quantise", Quantised)
        self.rescale = _kernel(functions, "rescale", Rescaled)
        self.log_softmax = _kernel(functions, "log_softmax", LogSoftmax)
        self.log_softmax_gradient = _kernel(functions, "log_softmax_gradient", LogSoftmax)
        self.open_slots = _declared(functions, "open_slots", [c_void_p, *[c_int64] * 5, c_void_p], c_int)
        self.reorder_slots = _declared(functions, "reorder_slots", [*[c_void_p] * 4, *[c_int64] * 5])
        self.run = _kernel(functions, "run", Operations)
        self.pack = _declared(functions, "pack", [POINTER(Packing)])
        self.map8 = _kernel(functions, "map8", Linear8)
        self.pack8 = _declared(functions, "pack8", [POINTER(Packing)])
        self.packed_bytes8 = _declared(functions, "packed_bytes8", [c_int64] * 2, c_int64)
        self.packed_bytes = _declared(functions, "packed_bytes", [c_int64] * 3, c_int64)
        functions.rskip_choose(most)
        self.largest_weight: int = _declared(functions, "largest_weight", [], c_int64)()  # of 8 bits
        self.instructions: str = functions.rskip_instructions().decode()


def _declared(functions: ctypes.CDLL, name: str, arguments: list, result: type | None = None) -> Any:
    function = getattr(functions, f"rskip_{name}")
    function.argtypes, function.restype = arguments, result
    return function


def _kernel(functions: ctypes.CDLL, name: str, arguments: type[ctypes.Structure]) -> Callable[..., None]:
    return partial(_in_threads, _declared(functions, name, [POINTER(arguments), c_int64, c_int64]))


def _in_threads(kernel: Any, arguments: ctypes.Structure, count: int, *, work: int = 0) -> None:
    threads = min(count, torch.get_num_threads()) if work >= _WORK_TO_SHARE else 1
    if threads == 1:
        kernel(arguments, 0, count)
        return
    bounds = [count * number // threads for number in range(threads + 1)]
    others = [Thread(target=kernel, args=(arguments, *each)) for each in pairwise(bounds[1:])]
    for each in others:
        each.start()
    kernel(arguments, 0, bounds[1])
    for each in others:
        each.join()


@dataclass(frozen=True)
class Found:
    """The library, or why there is none."""

    library: Library | None
    problem: str = ""


@cache
def find_library() -> Found:
    """Loads the compiled kernels, once.

    :raises SettingError: RSKIP_NATIVE is no known word.
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
        return Found(None, f"{files[0]} can't be used ({error}): install rskip again")


def native_library(tensor: torch.Tensor) -> Library | None:
    """The kernels, where they are there and read such a tensor: contiguous float32 or bfloat16 of a CPU."""
    suits = tensor.dtype in TYPES and tensor.device.type == "cpu" and tensor.is_contiguous()
    return find_library().library if suits else None
