"""Runs a model once and records which torch functions it called, in which modules, and where sums stand in its code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

# Functions whose result is their first argument in another shape, order, type or memory, at inference.
_ALIAS = re.compile(
    r"(view|reshape|type|expand)(_as)?|transpose|permute|contiguous|to|float|double|half|bfloat16|(alpha_|feature_)?"
    r"dropout[123]?d?_?|(un)?flatten|(un)?squeeze|clone|detach|movedim|swap(axes|dims)|alias|__get__|cpu|cuda"
)
# Functions that map features linearly, or mix positions.
_LINEAR = re.compile(
    r"linear|(chain_)?matmul|__r?matmul__|b?mm|add(b?mm|bmm)|baddbmm|mv|inner|outer|einsum|tensordot|bilinear|"
    r"conv(_transpose)?[123]d|scaled_dot_product_attention|multi_head_attention_forward|lstm|gru|rnn_\w+|"
    r"i?r?fft2?|(adaptive_)?(avg|max)_pool[12]d|embedding|_?grouped_mm|cumsum"
)
_ADDITION = re.compile(r"__[ri]?add__|add_?")
_TORCHS_OWN = ("/torch/nn/modules/module.py", "/torch/_tensor.py", "/torch/overrides.py", "/rskip/nn/tracing.py")


@dataclass(frozen=True)
class Spot:
    """Where a function of the model called another: its code, its first argument, and the place in its source.

    :param end: where the call ends: the line, counted from the function's first, and the column in bytes. In Python
        3.10 it is a line of the call, and -1.
    """

    code: CodeType
    owner: Any
    names: Mapping[str, Any]
    end: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a torch function.

    :param reads: the values of its arguments, in order.
    :param gives: the values of its results.
    :param kind: `alias`, `linear`, `add` or `other`.
    :param stack: the calls of modules in which it happened, outermost first, by their numbers.
    :param spots: for a sum, the functions that led to it, innermost first.
    """

    name: str
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    kind: str
    stack: tuple[int, ...]
    where: tuple[str, int]
    spots: tuple[Spot, ...] = ()
    causal: bool = False


@dataclass
class Call:
    """One call of a module. `first` and `last` delimit its steps; tensors are given by their values."""

    module: nn.Module
    outer: int | None
    first: int
    last: int = -1
    reads: dict[int | str, int] = field(default_factory=dict)
    gives: Any = None


@dataclass
class Trace:
    """What one run did. A value is a number, since one tensor may hold several after changes in place.

    :param same: the value of which each value is an alias, if it is one.
    :param sizes: the shape of each value.
    """

    steps: list[Step] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    same: list[int] = field(default_factory=list)
    sizes: list[torch.Size] = field(default_factory=list)


class _Recorder(TorchFunctionMode):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.open: list[int] = []
        self._values: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that no id is used twice

    def value(self, tensor: Tensor) -> int:
        """The value that the tensor holds now."""
        found = self._values.get(id(tensor))
        return self._new(tensor) if found is None else found

    def _new(self, tensor: Tensor, same: int | None = None) -> int:
        number = len(self.trace.same)
        self._values[id(tensor)] = number
        self._alive.append(tensor)
        self.trace.same.append(number if same is None else same)
        self.trace.sizes.append(tensor.shape)
        return number

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        kwargs = kwargs or {}
        reads = tuple(self.value(each) for each in _tensors((*args, *kwargs.values())))
        result = function(*args, **kwargs)
        outputs = list(_tensors((result,)))
        if name.endswith("_as"):
            reads = reads[:1]  # the other argument gives only its shape or type
        if not outputs or not reads or name.endswith("_like") or name.startswith("new_"):
            return result
        kind = _kind(name, self.trace, reads, outputs)
        if kind == "alias" and self._values.get(id(outputs[0])) == reads[0]:
            return result
        source = self.trace.same[reads[0]] if kind == "alias" else None
        gives = tuple(self._new(each, source) for each in outputs)
        spots = tuple(_spots()) if kind == "add" else ()
        frame = sys._getframe(1)
        where = frame.f_code.co_filename, frame.f_lineno
        causal = bool(kwargs.get("is_causal"))
        self.trace.steps.append(Step(name, reads, gives, kind, tuple(self.open), where, spots, causal))
        return result

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = Call(module, self.open[-1] if self.open else None, len(self.trace.steps))
        given: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}  # type: ignore[dict-item]
        for key, each in given.items():
            if isinstance(each, Tensor) and each.is_floating_point():
                call.reads[key] = self.value(each)
        self.open.append(len(self.trace.calls))
        self.trace.calls.append(call)

    def after(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        call = self.trace.calls[self.open.pop()]
        assert call.module is module, "a module ended another one's call"
        call.last = len(self.trace.steps)
        if isinstance(result, (tuple, list)):
            call.gives = [self.value(each) if isinstance(each, Tensor) else None for each in result]
        elif isinstance(result, Tensor):
            call.gives = self.value(result)


def trace(model: nn.Module, run: Callable[[], Any], into: Trace) -> Any:
    """Records `run()`, which calls the model, and returns what it returns."""
    recorder = _Recorder(into)
    with ExitStack() as undo:
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(recorder.before, with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(recorder.after, with_kwargs=True).remove)
        with recorder:
            return run()


def _kind(name: str, trace: Trace, reads: tuple[int, ...], outputs: list[Tensor]) -> str:
    if _ADDITION.fullmatch(name):
        return "add"
    if _LINEAR.fullmatch(name):
        return "linear"
    is_whole = len(outputs) == 1 and outputs[0].numel() == trace.sizes[reads[0]].numel()
    return "alias" if _ALIAS.fullmatch(name) and is_whole else "other"


def _tensors(values: Any) -> Iterator[Tensor]:
    for each in values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, (tuple, list)):
            yield from _tensors(each)
        elif isinstance(each, dict):
            yield from _tensors(each.values())


def _spots() -> Iterator[Spot]:
    """The functions on the way to the sum, innermost first, without PyTorch's own that call modules."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.endswith(_TORCHS_OWN):
            owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            yield Spot(code, owner, frame.f_globals, _end(frame))
        frame = frame.f_back


def _end(frame: FrameType) -> tuple[int, int]:
    first = frame.f_code.co_firstlineno
    if sys.version_info < (3, 11):
        return frame.f_lineno - first, -1
    last, column = _position(frame.f_code, frame.f_lasti // 2)
    return last - first, column


@cache
def _position(code: CodeType, instruction: int) -> tuple[int, int]:
    """The line and column where an instruction ends."""
    _, last, _, column = next(islice(code.co_positions(), instruction, None))
    return last or 0, column or 0
