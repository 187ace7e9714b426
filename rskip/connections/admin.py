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
    text_only=True,
    needs_profile=True,
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

    def __init__(self, features: int, *, norm: str, feature_dim: int = -1) -> None:
        super().__init__(features, norm=norm, init=1, rate=1, floor=0, feature_dim=feature_dim)


@contextmanager
def admin_profiling(stack: nn.Module, positions: Tensor | None = None) -> Iterator[None]:
    """Within the block one forward pass sets ω of the stack's Admin connections, in the order of their calls.

    The first has ω = 1, the next ω² = Var(ω·x) + Var(f) of the one before: variances of all features at all positions.

    :param positions: (B, T), true where a token stands; None: everywhere. Padding is left out, which the paper's code
        counts.
    """
    squared = torch.ones(())

    def set_weight(connection: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        nonlocal squared
        assert isinstance(connection, Admin)
        x, f = (at_least_float32(each if positions is None else each[positions]) for each in inputs)
        with torch.no_grad():
            connection.skip_weight.fill_(sqrt(squared))
            squared = squared * x.var(correction=0) + f.var(correction=0)

    with ExitStack() as hooks:
        for connection in stack.modules():
            if isinstance(connection, Admin):
                hooks.callback(connection.register_forward_pre_hook(set_weight).remove)
        yield


def is_profiled(stack: nn.Module) -> bool:
    """Whether ω of any of the stack's Admin connections isn't 1, or it has none."""
    weights = [each.skip_weight for each in stack.modules() if isinstance(each, Admin)]
    return not weights or any(bool((weight != 1).any()) for weight in weights)
