"""Checks, in one run of a model, that it calls its residuals once each and in order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from rskip.nn.residuals import Residuals


def check_calls(model: nn.Module, *args: Any, **kwargs: Any) -> None:
    """Runs `model(*args, **kwargs)` without gradients, and checks what it calls of each `Residuals` in it.

    Expected is `enter`, then each residual once, by layers, then `leave`; or this several times, as in a recurrent
    model. Most connections give a wrong result without an error if such a call is missing, doubled or out of order.

    :param model: a model with one or more `Residuals`. Training mode and LayerDrop may leave out layers.
    :raises ValueError: the model has no `Residuals`, or a call is not the expected one.
    """
    stacks = {name: module for name, module in model.named_modules() if isinstance(module, Residuals)}
    if not stacks:
        raise ValueError(f"check_calls got a {type(model).__name__} without Residuals: expected a model that has some")
    calls: dict[str, list[str]] = {name: [] for name in stacks}
    with ExitStack() as undo, torch.no_grad():
        for name, residuals in stacks.items():
            for call, (module, method) in _expected(residuals).items():
                _record(module, method, call, calls[name], undo)
        model(*args, **kwargs)
    for name, residuals in stacks.items():
        _compare(name or "Residuals", list(_expected(residuals)), calls[name])


def _record(module: nn.Module, method: str, call: str, calls: list[str], undo: ExitStack) -> None:
    """Makes the method note the call, until `undo` is closed."""
    original: Callable[..., Any] = getattr(module, method)

    def noted(*args: Any) -> Any:
        calls.append(call)
        return original(*args)

    module.__dict__[method] = noted
    undo.callback(module.__dict__.pop, method)


def _expected(residuals: Residuals) -> dict[str, tuple[nn.Module, str]]:
    """Each call in its order, with the module and the name of the method."""
    residual = {
        f"{branch} of layer {number}": (module, "before")
        for number, layer in enumerate(residuals)
        for branch, module in layer.named_children()
    }
    return {"enter": (residuals, "enter"), **residual, "leave": (residuals, "leave")}


def _compare(name: str, expected: list[str], calls: list[str]) -> None:
    rounds = max(1, -(-len(calls) // len(expected)))
    for number, wanted in enumerate(expected * rounds):
        found = calls[number] if number < len(calls) else None
        if found != wanted:
            place = f"after {calls[number - 1]}" if number else "at first"
            raise ValueError(f"the model's {name}: {place} it calls {found or 'nothing more'}: expected {wanted}")
