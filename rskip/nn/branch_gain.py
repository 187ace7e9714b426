"""Scales a branch's initial weights by its connection's gain, and warns if a training starts with unscaled weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections import Connection
from rskip.connections.connection import check_floating
from rskip.settings.errors import shown

_EXPECTED = "expected linear maps, parts of their weights, or an nn.MultiheadAttention"
_UNSCALED = (
    "training starts with initial weights that were not scaled, although host_supplies names branch_gain: call "
    "scale_branch of each residual before training (docs/residuals.md); ignore this if you scale them yourself"
)

_ODD = -7046029254386353131  # 2^64 divided by the golden ratio, as in SplitMix64: spreads the bits
_scaled: set[tuple[int, int]] = set()  # content of the weights that this process has scaled, of all models


def weights_of(parts: Sequence[object]) -> list[Tensor]:
    """The weights that `scale_branch` scales.

    :param parts: linear maps, tensors, and attentions of torch.nn, which stand for their value and output maps.
    :raises TypeError: a part is something else.
    :raises ValueError: a weight is empty, a copy or computed, a part occurs twice, or there is none.
    """
    weights: list[Tensor] = []
    for part in parts:
        if isinstance(part, nn.MultiheadAttention):
            joint = part.in_proj_weight
            _check_stored(part, part.v_proj_weight if joint is None else joint)
            _check_stored(part.out_proj, part.out_proj.weight)
            weights += [part.v_proj_weight if joint is None else joint[2 * part.embed_dim :], part.out_proj.weight]
            continue
        weight: Any = part if isinstance(part, Tensor) else getattr(part, "weight", None)
        if not isinstance(weight, Tensor) or (weight is not part and weight.dim() < 2):
            given = f"a {type(part).__name__}" if isinstance(part, (nn.Module, list, tuple)) else shown(part)
            raise TypeError(f"scale_branch got {given}: {_EXPECTED}; pass each map as a separate argument")
        check_floating(weight, "a weight for scale_branch")
        _check_stored(part, weight)
        weights.append(weight)
    if not weights or any(not weight.numel() for weight in weights):
        shapes = ", ".join(str(tuple(weight.shape)) for weight in weights)
        given = f"an empty weight (shapes: {shapes}); check the slice" if weights else "no weights"
        raise ValueError(f"scale_branch got {given}: {_EXPECTED}")
    for one, other in combinations(weights, 2):
        same_memory = _is_plain(one) and _is_plain(other) and one.data_ptr() == other.data_ptr() != 0
        if one is other or (same_memory and one.shape == other.shape):
            raise ValueError(f"scale_branch got one weight of shape {tuple(one.shape)} twice: pass each weight once")
    return weights


def _check_stored(part: object, weight: Tensor) -> None:
    """Raises ValueError for a tensor that the model does not store: scaling it would change nothing."""
    if not _is_plain(weight):
        return
    base = weight if weight._base is None else weight._base
    if isinstance(part, nn.Module):
        if not isinstance(base, nn.Parameter):
            raise ValueError(
                f"scale_branch got a {type(part).__name__} whose weight is computed from other parameters, such as by "
                "weight_norm: call scale_branch before the reparametrisation"
            )
    elif base.grad_fn is not None:
        raise ValueError(
            f"scale_branch got a copy of a weight, of shape {tuple(weight.shape)}, and scaling it changes nothing: "
            "pass the weight or a view of it, such as weight[start:end]; reshape and indexing with a list make copies"
        )


def scale(weights: Sequence[Tensor], gain: float) -> None:
    """Multiplies the weights by the gain, in place.

    :raises ValueError: a weight, or one that it is a copy of, was scaled before and has not changed since.
    """
    if not _scaled.isdisjoint(map(_content, weights)):
        raise ValueError("scale_branch got weights that are already scaled: call it once after each initialisation")
    with torch.no_grad():
        for weight in weights:
            weight.mul_(gain)
    _scaled.update(content for weight in weights if (content := _content(weight)) is not None)


def _content(weight: Tensor) -> tuple[int, int] | None:
    """The weight's size and a hash of its values, which copies keep; None if there is nothing to compare.

    The hash is a sum of integers. So it depends neither on the order of the values, as in a transposed weight, nor on
    the number of threads.
    """
    if not _is_plain(weight) or weight.is_meta or not bool(weight.any()):
        return None
    bits = weight.detach().cpu().double().view(torch.int64)
    mixed = (bits ^ (bits >> 32)) * _ODD  # products wrap around
    return weight.numel(), int((mixed ^ (mixed >> 29)).sum())


def _is_plain(weight: Tensor) -> bool:
    """Whether the tensor is one of torch itself, not of a subclass such as DTensor, which may have no memory."""
    return type(weight) in (Tensor, nn.Parameter)


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
