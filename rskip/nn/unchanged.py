"""Finds the stacks of a model that `adapt` did not change, since it does not know their blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from torch import nn

from rskip.nn.hosts import AdaptedBlock


def unchanged_stacks(module: nn.Module, name: str = "") -> Iterator[str]:
    """Describes each container with several residual blocks of one class in a row and no adapted block.

    :param module: an adapted model.
    :param name: its name.
    """
    if isinstance(module, AdaptedBlock):
        return
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and not any(
        isinstance(each, AdaptedBlock) for each in module.modules()
    ):
        runs = [(kind, len(list(run))) for kind, run in groupby(filter(_is_like_a_block, module), type)]
        found = [f"{name} ({count} × {kind.__name__})" for kind, count in runs if count > 1]
        if found:
            yield from found
            return
    for child_name, child in module.named_children():
        yield from unchanged_stacks(child, f"{name}.{child_name}" if name else child_name)


def _is_like_a_block(module: nn.Module) -> bool:
    """Whether a module has a class of its own, a normalisation and several other modules with parameters."""
    if isinstance(module, (nn.ModuleList, nn.Sequential)):
        return False
    owners = [each for each in module.modules() if any(True for _ in each.parameters(recurse=False))]
    norms = sum("norm" in type(each).__name__.lower() for each in owners)
    return norms > 0 and len(owners) - norms > 1
