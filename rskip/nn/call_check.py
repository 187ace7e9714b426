"""Checks, in one run of a model, that it calls its residuals once each and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from rskip.nn.residuals import Residuals


def check_calls(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Runs `model(*args, **kwargs)` without gradients, and checks what it calls of each `Residuals` in it.

    The model must call `enter`, then each residual once in the order of the layers, then `leave`. It may repeat this
    sequence. Most connections give a wrong result without an error if a call is missing, doubled or out of order.

    :param model: a model with one or more `Residuals`. Call `model.eval()` first if it drops layers in training or has
        batch normalisation, whose statistics the run would change.
    :raises ValueError: the model has no `Residuals`, or a call is not the expected one.
    """
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Residuals)}
    if not stacks:
        raise ValueError(f"check_calls got a {type(model).__name__} without Residuals: expected a model that has some")
    calls: dict[str, list[str]] = {name: [] for name in stacks}
    error = None
    with ExitStack() as undo, torch.no_grad():
        for name, residuals in stacks.items():
            for call, (module, method) in _expected(residuals).items():
                _record(module, method, call, calls[name], undo)
        try:
            model(*args, **kwargs)
        except Exception as raised:  # perhaps because of a wrong call
            error = raised
    try:
        for name, residuals in stacks.items():
            _compare(name, list(_expected(residuals)), calls[name], finished=error is None)
    except ValueError as wrong:
        raise wrong from error
    if error is not None:
        raise error


def _record(module: nn.Module, method: str, call: str, calls: list[str], undo: ExitStack) -> None:
    """Makes the method note the call, until `undo` is closed."""
    original: Callable[..., Any] = getattr(module, method)
    own = module.__dict__.get(method)

    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(call)
        return original(*args, **kwargs)

    module.__dict__[method] = noted
    undo.callback(module.__dict__.pop if own is None else module.__dict__.__setitem__, method, own)


def _expected(residuals: Residuals) -> dict[str, tuple[nn.Module, str]]:
    """Each call in its order, as it is written in code, with the module and the name of the method."""
    found: dict[str, tuple[nn.Module, str]] = {"enter": (residuals, "enter")}
    for number, layer in enumerate(residuals):
        for branch, residual in layer.named_children():
            found |= {f"[{number}].{branch}.{method}": (residual, method) for method in ("before", "after")}
    return {**found, "leave": (residuals, "leave")}


def _compare(name: str, expected: Sequence[str], calls: Sequence[str], *, finished: bool) -> None:
    """Raises ValueError at the first call that differs from repetitions of the expected ones.

    :param finished: whether calls may be missing at the end, because the model has raised an error.
    """
    of = f"the model's {name}" if name else "the model"
    for number, called in enumerate(calls):
        wanted = expected[number % len(expected)]
        if called != wanted:
            after = f"after {calls[number - 1]} it" if number else "first it"
            wanted = "nothing more, or enter" if number and wanted == "enter" else wanted
            raise ValueError(f"{of}: {after} calls {called}: expected {wanted}")
    if finished and (not calls or len(calls) % len(expected)):
        after = f"after {calls[-1]} it makes no call" if calls else "it is not called"
        raise ValueError(f"{of}: {after}: expected {expected[len(calls) % len(expected)]}")
