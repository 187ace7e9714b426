"""Admin: the post-norm block with one learned factor per feature of x. A profiling pass initialises the factors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections.formula import FormulaConnection
from rskip.connections.linear import Fill
from rskip.connections.norms import at_least_float32
from rskip.formulas.postnorm import Admin

_UNPROFILED = (
    "admin is trained without its profiling pass: run one forward pass inside rskip.connections.admin_profiling(stack) "
    "before training (docs/connection_details.md), or use wskip+ln, which starts at 1"
)


class AdminConnection(FormulaConnection, computes=Admin):
    """Computes `Admin`, and warns if it is trained without the pass."""

    skip_weight: Tensor
    profiled = False  # whether a pass set ω, or ω other than 1 was loaded; training alone also moves ω from 1

    def reset_parameters(self, weight_init: Fill | None = None) -> None:
        super().reset_parameters(weight_init)
        self.profiled = False

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}skip_weight" in state_dict and not self.skip_weight.is_meta:
            self.profiled = bool((self.skip_weight != 1).any())

    def forward(self, x: Tensor, f: Tensor) -> Tensor:
        y = super().forward(x, f)
        trains = self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if self.warns_unprofiled and trains and not y.is_meta:  # the meta device has no values to look at
            self.warns_unprofiled = False
            if not self.profiled:
                warnings.warn(_UNPROFILED, stacklevel=2)
        return y


@contextmanager
def admin_profiling(stack: nn.Module, positions: Tensor | None = None) -> Iterator[None]:
    """Sets ω of the stack's Admin connections during the one forward pass that runs inside this context.

    The connections are set in call order. The first gets ω = 1. Each later one gets ω² = Var(ω·x) + Var(f) of the
    connection before it, where a variance covers all features and positions. If the context raises, ω is restored.

    :param stack: an encoder or a decoder. A stack without Admin connections stays unchanged.
    :param positions: (B, T), true at tokens; None: every position. Padding is excluded here, but counted in the
        paper's code.
    :raises ValueError: `positions` is not a mask of x's positions, a variance is not finite, or the context ends
        without exactly one forward pass of the whole stack.
    """
    squared = torch.ones(())
    connections = [each for each in stack.modules() if isinstance(each, AdminConnection)]
    before = [(each.skip_weight.detach().clone(), each.profiled) for each in connections]
    seen: set[nn.Module] = set()

    def set_weight(connection: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        nonlocal squared
        assert isinstance(connection, AdminConnection)
        if connection in seen:
            raise ValueError("admin_profiling: a block ran twice: run one forward pass of one encoder or decoder")
        seen.add(connection)
        x, f = (at_least_float32(_at(positions, each)) for each in inputs)
        if not len(x):
            raise ValueError("admin_profiling: positions marks no token: expected a batch with at least one token")
        with torch.no_grad():
            connection.skip_weight.fill_(sqrt(squared))
            connection.profiled = True
            squared = squared * x.var(correction=0) + f.var(correction=0)
        if not squared.isfinite():
            problem = f"the variance of block {len(seen)} is {squared.item():g}"
            raise ValueError(f"admin_profiling: {problem}: expected a finite value; check batch and initial weights")

    try:
        with ExitStack() as hooks:
            for connection in connections:
                hooks.callback(connection.register_forward_pre_hook(set_weight).remove)
            yield
        if len(seen) < len(connections):
            ran = f"{len(seen)} of {len(connections)} blocks ran"
            raise ValueError(f"admin_profiling: {ran}: expected one forward pass of the whole stack")
    except BaseException:
        with torch.no_grad():
            for connection, (weight, profiled) in zip(connections, before, strict=True):
                connection.skip_weight.copy_(weight)
                connection.profiled = profiled
        raise


def _at(positions: Tensor | None, values: Tensor) -> Tensor:
    if positions is None:
        return values
    if positions.dtype != torch.bool or positions.shape != values.shape[:-1]:
        given = f"{tuple(positions.shape)} of {positions.dtype}"
        raise ValueError(f"admin_profiling: positions must be {tuple(values.shape[:-1])} of torch.bool, not {given}")
    return values[positions]


def is_profiled(stack: nn.Module) -> bool:
    """True if a profiling pass set the stack's ω, or they were loaded, or if the stack has no Admin connection."""
    found = [each.profiled for each in stack.modules() if isinstance(each, AdminConnection)]
    return not found or any(found)
