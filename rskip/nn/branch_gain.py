"""The weights of a branch that its connection's gain multiplies, and a warning if a training starts without."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rskip.connections import Connection

_UNSCALED = (
    "training starts with initial weights that were not scaled, although host_supplies names branch_gain: call "
    "scale_branch of each residual before training (docs/residuals.md); ignore this if you scale them yourself"
)


def weights_of(parts: Sequence[nn.Module | Tensor]) -> list[Tensor]:
    """The weights that `scale_branch` scales.

    :param parts: linear maps, tensors, and attentions of torch.nn, which stand for their value and output maps.
    :raises ValueError: there is no weight, or the model does not store one, so scaling it would change nothing.
    """
    weights: list[Tensor] = []
    for part in parts:
        if isinstance(part, nn.MultiheadAttention):
            joint = part.in_proj_weight
            weights += [part.v_proj_weight if joint is None else joint[2 * part.embed_dim :], part.out_proj.weight]
        else:
            weights.append(part if isinstance(part, Tensor) else part.get_parameter("weight"))
    if not weights or any(not weight.numel() for weight in weights):
        raise ValueError("scale_branch got no weights, or an empty one: expected linear maps or parts of their weights")
    for weight in weights:
        base = weight if weight._base is None else weight._base
        if base.grad_fn is not None:
            given = f"a copy of a weight, of shape {tuple(weight.shape)}, and scaling it changes nothing"
            advice = "pass the weight or a view of it, such as weight[start:end], before any reparametrisation"
            raise ValueError(f"scale_branch got {given}: {advice}")
    return weights


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
