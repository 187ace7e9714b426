"""Checks, in one run of a model, that it calls its residuals once each, in order and without changes in place."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import State
from rskip.nn.residuals import Residuals


def check_calls(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Runs `model(*args, **kwargs)` without gradients, and checks what it calls of each `Residuals` in it.

    The model must call `enter`, then each residual once in the order of the layers, then `leave`. It may repeat this
    sequence. Most connections give a wrong result without an error if a call is missing, doubled or out of order. A
    branch's output must have the shape of its input, and no branch may change the state in place, since the connection
    needs it after the branch.

    :param model: a model with one or more `Residuals`. Call `model.eval()` first if it drops layers in training or has
        batch normalisation, whose statistics the run would change.
    :raises ValueError: the model has no `Residuals`, a call is not the expected one, or a branch changes the state or
        returns another shape.
    """
    stacks = [
        _Calls(f"the model's {name}" if name else "the model", module)
        for name, module in model.named_modules()
        if isinstance(module, Residuals)
    ]
    if not stacks:
        raise ValueError(f"check_calls got a {type(model).__name__} without Residuals: expected a model that has some")
    error = None
    with ExitStack() as undo, torch.no_grad():
        for calls in stacks:
            for call, (module, method) in calls.expected.items():
                calls.record(module, method, call, undo)
        try:
            model(*args, **kwargs)
        except Exception as raised:  # perhaps because of a wrong call
            error = raised
    try:
        for calls in stacks:
            calls.compare(finished=error is None)
    except ValueError as wrong:
        raise wrong from error
    if error is not None:
        raise error


class _Calls:
    """The calls of one `Residuals`.

    :param of: the `Residuals`, for errors.
    """

    def __init__(self, of: str, residuals: Residuals) -> None:
        self.of = of
        # each call in its order, as it is written in code, with the module and the name of the method
        self.expected: dict[str, tuple[nn.Module, str]] = {"enter": (residuals, "enter")}
        for number, layer in enumerate(residuals):
            for (branch, _), connection in zip(layer.named_children(), layer.connections(), strict=True):
                for method in ("before", "after"):
                    self.expected[f"[{number}].{branch}.{method}"] = connection, method
        self.expected["leave"] = residuals, "leave"
        self.made: list[str] = []
        # what `before` returned to the branch: its input's shape, and the state's tensors with their versions
        self.given: dict[nn.Module, tuple[torch.Size, list[tuple[Tensor, int]]]] = {}

    def record(self, module: nn.Module, method: str, call: str, undo: ExitStack) -> None:
        """Makes the method note the call, until `undo` is closed."""
        original, own = getattr(module, method), module.__dict__.get(method)
        branch = f"{self.of}: the branch of {call.rpartition('.')[0]}"

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.made.append(call)
            shape, kept = self.given.pop(module, (None, []))
            if any(tensor._version != version for tensor, version in kept):
                advice = "expected a new tensor, for example with inplace=False"
                raise ValueError(f"{branch} changes its input in place: {advice}")
            if method == "after" and shape is not None:
                f = kwargs["f"] if "f" in kwargs else args[1]
                if not isinstance(f, Tensor) or not f.is_floating_point() or f.shape != shape:
                    returned = f"{f.dtype} {tuple(f.shape)}" if isinstance(f, Tensor) else f"a {type(f).__name__}"
                    raise ValueError(f"{branch} returns {returned}: expected floats {tuple(shape)}, as its input")
            result = original(*args, **kwargs)
            if method == "before":
                self.given[module] = result[0].shape, _with_versions(result[1])
            return result

        module.__dict__[method] = noted
        undo.callback(module.__dict__.pop if own is None else module.__dict__.__setitem__, method, own)

    def compare(self, *, finished: bool) -> None:
        """Raises ValueError at the first call that differs from repetitions of the expected ones.

        :param finished: whether the model ran to its end. If not, calls may be missing at the end.
        """
        made, expected = self.made, list(self.expected)
        for number, called in enumerate(made):
            wanted = expected[number % len(expected)]
            if called != wanted:
                after = f"after {made[number - 1]} it" if number else "first it"
                wanted = "nothing more, or enter" if number and wanted == "enter" else wanted
                raise ValueError(f"{self.of}: {after} calls {called}: expected {wanted}")
        if finished and (not made or len(made) % len(expected)):
            after = f"after {made[-1]} it makes no call" if made else "it is not called"
            raise ValueError(f"{self.of}: {after}: expected {expected[len(made) % len(expected)]}")


def _with_versions(state: State) -> list[tuple[Tensor, int]]:
    """The state's tensors with their versions, which every change in place increases. Compiled code has no versions."""
    if torch.compiler.is_compiling():
        return []
    tensors = state if isinstance(state, tuple) else (state,)
    return [(each, each._version) for each in tensors if isinstance(each, Tensor) and not each.is_inference()]
