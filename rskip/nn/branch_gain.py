"""Scales a branch's initial weights by its connection's gain, and warns if a training starts with unscaled weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import Connection
from rskip.connections.connection import check_floating
from rskip.settings.errors import shown

_EXPECTED = "expected linear maps, parts of their weights, or an nn.MultiheadAttention"
_UNSCALED = (
    "the training starts with initial weights that were not scaled, although host_supplies names branch_gain: call "
    "scale_branch of each residual before the training (docs/residuals.md); ignore this if you scale them yourself"
)


def weights_of(parts: Sequence[object]) -> list[Tensor]:
    """The weights that `scale_branch` scales.

    :param parts: linear maps, tensors, and attentions of torch.nn, which stand for their value and output maps.
    :raises TypeError: a part is something else.
    :raises ValueError: a weight is empty, or there is none.
    """
    weights: list[Tensor] = []
    for part in parts:
        if isinstance(part, nn.MultiheadAttention):
            joint = part.in_proj_weight
            weights += [part.v_proj_weight if joint is None else joint[2 * part.embed_dim :], part.out_proj.weight]
            continue
        weight: Any = part if isinstance(part, Tensor) else getattr(part, "weight", None)
        if not isinstance(weight, Tensor) or (weight is not part and weight.dim() < 2):
            given = f"a {type(part).__name__}" if isinstance(part, (nn.Module, list, tuple)) else shown(part)
            raise TypeError(f"scale_branch got {given}: {_EXPECTED}; pass each map of the branch as an own argument")
        check_floating(weight, "a weight for scale_branch")
        weights.append(weight)
    if not weights or any(not weight.numel() for weight in weights):
        shapes = ", ".join(str(tuple(weight.shape)) for weight in weights)
        given = f"an empty weight (shapes: {shapes}); check the slice" if weights else "no weights"
        raise ValueError(f"scale_branch got {given}: {_EXPECTED}")
    return weights


def fingerprint(weight: Tensor) -> tuple[object, float] | None:
    """The weight's memory and content; None if it has no content to compare."""
    if type(weight) not in (Tensor, nn.Parameter) or weight.is_meta:
        return None
    size = float(weight.detach().double().square().sum())
    return ((weight.data_ptr(), weight.shape, weight.stride()), size) if size else None


def expect_scaling(connection: Connection) -> None:
    """Makes the connection warn at its first training step, unless `settle` is called before."""
    connection.register_forward_pre_hook(_warn_unscaled)


def settle(connection: Connection) -> None:
    """Says that the branch's weights are scaled, or loaded."""
    hooks = connection._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _warn_unscaled]:
        del hooks[key]


def _warn_unscaled(connection: nn.Module, inputs: object) -> None:
    if connection.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        assert isinstance(connection, Connection)
        settle(connection)
        warnings.warn(_UNSCALED, stacklevel=2)
