"""What timm asks of an adapted model: its parameters without weight decay, and intermediate features of a ViT.

Each of the features is the stack's output if it ended after that block.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from torch import Tensor, nn

from rskip.connections import StackConnection, State
from rskip.nn.residuals import no_weight_decay
from rskip.settings.errors import SettingError


def finish(model: nn.Module) -> None:
    """Makes `no_weight_decay` name the connections' parameters too, and `forward_intermediates` return tensors.

    timm's optimizers call `no_weight_decay` of any model. The names are those of now, so that the model has no cycle.
    """
    of_library = getattr(model, "no_weight_decay", set)
    if callable(of_library):
        model.__dict__["no_weight_decay"] = partial(set, no_weight_decay(model).union(of_library()))
    for module in model.modules():
        if hasattr(module, "forward_intermediates") and any(map(_joins_several, module.modules())):
            module.__dict__["forward_intermediates"] = partial(_forward_intermediates, module)


def _joins_several(module: nn.Module) -> bool:
    """Whether the module is the last block of a stack whose state may be several tensors."""
    stack: StackConnection | None = module.__dict__.get("rskip_closing")
    return stack is not None and stack.closes


def _forward_intermediates(model: Any, *args: Any, **settings: Any) -> Any:
    """Calls the library's method. Hooks make each block return one tensor, and pass the state to the next block.

    :raises SettingError: the model recomputes activations.
    """
    if getattr(model, "grad_checkpointing", False):
        advice = "call set_grad_checkpointing(False)"
        raise SettingError("forward_intermediates", "does not work with gradient checkpointing", advice=advice)
    between: State | None = None

    def leave(stack: StackConnection, block: nn.Module, given: Any, state: State) -> Tensor:
        nonlocal between
        between = state
        return stack.leave(tuple(state) if isinstance(state, list) else state)

    def enter(block: nn.Module, given: Any) -> Any:
        assert between is not None, "the first block of an adapted stack was removed"
        return between, *given[1:]

    stack = None
    with ExitStack() as undo:
        for block in reversed([each for each in model.modules() if "rskip_closing" in vars(each)]):
            closing, opening = block.__dict__["rskip_closing"], block.__dict__["rskip_opening"]
            stack = stack if closing is None else closing
            assert stack is not None, "the last block of an adapted stack was removed"
            if closing is None:
                undo.callback(block.register_forward_hook(partial(leave, stack)).remove)
            if opening is None:
                undo.callback(block.register_forward_pre_hook(enter).remove)
        return type(model).forward_intermediates(model, *args, **settings)
