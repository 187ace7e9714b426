"""Doubly stochastic matrices, many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rskip.connections.norms import without_autocast

EPS = 1e-6  # DeepSeek's, added to every number and to every sum


def sinkhorn(logits: Tensor, iterations: int) -> Tensor:
    """exp(logits) with rows, then columns, divided by their sums, so many times (..., n, n): doubly stochastic.

    Source: Sinkhorn and Knopp 1967.
    """
    lines = (logits.softmax(-1) + EPS).reshape(-1, logits.size(-1) ** 2)  # a matrix each, its rows divided once
    return _Divided.apply(lines, 2 * iterations - 1).view_as(logits)


def _divisions(lines: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each division by the sums of columns, of rows, of columns, ...: quotients and divisors (R, n²), and `same`.

    same: (n², n²), 1 where two numbers share a column or row; a product with it has beside each number its sum.
    """
    n = math.isqrt(lines.size(-1))
    eps, eye, ones = lines.new_full((), EPS), torch.eye(n, dtype=lines.dtype, device=lines.device), lines.new_ones(n, n)
    columns, rows = torch.kron(ones, eye), torch.kron(eye, ones)
    for step in range(count):
        same = rows if step % 2 else columns
        with without_autocast(lines.device):
            sums = torch.addmm(eps, lines, same)
        lines = lines / sums
        yield lines, sums, same


class _Divided(torch.autograd.Function):
    """The last quotients of `_divisions`. It keeps the first matrices alone: the backward pass divides again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lines: Tensor, count: int) -> Tensor:
        for divided, _, _ in _divisions(lines, count):
            lines = divided
        return lines

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        lines, ctx.count = inputs
        ctx.save_for_backward(lines)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (lines,) = ctx.saved_tensors
        (of_lines,) = gradients
        for quotients, sums, same in reversed(list(_divisions(lines, ctx.count))):
            of_lines = of_lines / sums
            with without_autocast(lines.device):
                of_lines = torch.addmm(of_lines, of_lines * quotients, same, alpha=-1)
        return of_lines, None
