"""Admin: the post-norm block with a learned factor of each feature of x, started by a profiling pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import sqrt

import torch
from torch import Tensor, nn

from rskip.connections.norms import at_least_float32
from rskip.connections.registry import register_connection
from rskip.connections.rskip import WSkip
from rskip.settings.paper import Paper


@register_connection(
    "admin",
    formula="norm(ω ⊙ x + f), ω learned, at first by a profiling pass: ω₁ = 1, ω²_{i+1} = Var(ω_i x_i) + Var(f_i)",
    source="Liu et al. 2020, the pass as in its code (LiyuanLucasLiu/Transformer-Clinic)",
    norms=("ln", "rms"),
    default_norm="ln",
    paper=Paper(
        title="Understanding the Difficulty of Training Transformers",
        authors="Liyuan Liu, Xiaodong Liu, Jianfeng Gao, Weizhu Chen, Jiawei Han",
        url="https://arxiv.org/abs/2004.08249",
    ),
)
class Admin(WSkip):
    """y = norm(ω ⊙ x + f): ω, one number a feature, is 1 until `admin_profiling` sets it.

    Members: `skip_weight` (C), `norm`.
    """

    needs_profile = True

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, init=1, rate=1, floor=0, feature_dim=feature_dim)


@contextmanager
def admin_profiling(stack: nn.Module, positions: Tensor | None = None) -> Iterator[None]:
    """Within the block one forward pass sets ω of the stack's Admin connections, in the order of their calls.

    The first has ω = 1, the next ω² = Var(ω·x) + Var(f) of the one before: variances of all features at all positions.
    If anything is raised in the block, ω is as it was.

    :param stack: an encoder or a decoder; one without Admin connections is left as it is.
    :param positions: (B, T), true where a token stands; None: everywhere. Padding is left out, which the paper's code
        counts.
    :raises ValueError: positions is no mask of x's positions, a variance isn't finite, or the block ends without one
        forward pass of the whole stack, or with more.
    """
    squared = torch.ones(())
    connections = [each for each in stack.modules() if isinstance(each, Admin)]
    before = [each.skip_weight.detach().clone() for each in connections]
    seen: set[nn.Module] = set()

    def set_weight(connection: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        nonlocal squared
        assert isinstance(connection, Admin)
        if connection in seen:
            raise ValueError("admin_profiling: expected one forward pass of an encoder or a decoder: a block ran twice")
        seen.add(connection)
        x, f = (at_least_float32(_at(positions, each)) for each in inputs)
        if not len(x):
            raise ValueError("admin_profiling: expected a batch with tokens, and positions has none")
        with torch.no_grad():
            connection.skip_weight.fill_(sqrt(squared))
            squared = squared * x.var(correction=0) + f.var(correction=0)
        if not squared.isfinite():
            raise ValueError(f"admin_profiling: the variance of block {len(seen)} is {squared.item():g}")

    try:
        with ExitStack() as hooks:
            for connection in connections:
                hooks.callback(connection.register_forward_pre_hook(set_weight).remove)
            yield
        if len(seen) < len(connections):
            ran = f"{len(seen)} of {len(connections)} blocks ran"
            raise ValueError(f"admin_profiling: expected a forward pass of the whole stack: {ran}")
    except BaseException:
        with torch.no_grad():
            for connection, weight in zip(connections, before, strict=True):
                connection.skip_weight.copy_(weight)
        raise


def _at(positions: Tensor | None, values: Tensor) -> Tensor:
    if positions is None:
        return values
    if positions.dtype != torch.bool or positions.shape != values.shape[:-1]:
        given = f"{tuple(positions.shape)} of {positions.dtype}"
        raise ValueError(f"admin_profiling: positions must be {tuple(values.shape[:-1])} of torch.bool, not {given}")
    return values[positions]


def is_profiled(stack: nn.Module) -> bool:
    """Whether ω of any of the stack's Admin connections isn't 1, or it has none."""
    weights = [each.skip_weight for each in stack.modules() if isinstance(each, Admin)]
    return not weights or any(bool((weight != 1).any()) for weight in weights)
