"""Warns of a stack that has lost the block that opens or closes it."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from torch import nn

from rskip.connections import StackConnection


def warn_of_cuts(owner: nn.Module, container: str, stack: StackConnection, *, closes: bool) -> None:
    """Makes each call of the owner check that its container still has the blocks that open and close the stack.

    :param closes: whether the last block closes the stack even if the stack itself does not, with a normalisation.
    """
    needed = {
        "opening": type(stack).enter is not StackConnection.enter,
        "closing": closes or type(stack).leave is not StackConnection.leave,
    }
    if ends := [end for end, is_needed in needed.items() if is_needed]:
        owner.register_forward_pre_hook(partial(_check_ends, container, stack, ends))


def cut(end: str) -> str:
    """What to say of a stack without the block of this end, "opening" or "closing"."""
    which, does = ("first", "opens") if end == "opening" else ("last", "closes")
    return (
        f"the {which} block of an adapted stack was removed, so no block {does} the stack: remove blocks before you "
        "adapt the model, unless this is a stage of a pipeline"
    )


def _check_ends(container: str, stack: StackConnection, ends: list[str], owner: nn.Module, given: Any) -> None:
    blocks = owner._modules.get(container)
    if blocks is None or torch.compiler.is_compiling():
        return
    children = list(blocks.children())
    for end in ends:
        ordered = children if end == "opening" else children[::-1]  # the block is most often the first one
        if not any(each.__dict__.get(end) is stack for child in ordered for each in child.modules()):
            warnings.warn(cut(end), stacklevel=2)
