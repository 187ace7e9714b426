"""Sinkhorn normalisation of many small matrices at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rskip.connections.norms import without_autocast

EPS = 1e-6  # DeepSeek's value


def sinkhorn(logits: Tensor, iterations: int, eps: float = EPS) -> Tensor:
    """Makes exp(logits) (..., n, n) doubly stochastic: `iterations` times, divides rows, then columns, by their sums.

    Source: Sinkhorn and Knopp 1967. `eps` is added to every entry once, and to every sum.
    """
    lines = (logits.softmax(-1) + eps).reshape(-1, logits.size(-1) ** 2)  # one matrix per line, its rows divided once
    divide = _Divided.apply if torch.is_grad_enabled() else _Divided.forward
    with without_autocast(logits.device):
        return divide(lines, 2 * iterations - 1, eps).view_as(logits)


def _divisions(lines: Tensor, count: int, eps: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yields each division by the sums of columns, rows, columns, ...: quotients and divisors (R, n²), and `same`.

    `same` (n², n²) is 1 where two entries share the column or row. A product with it replaces each entry by its sum.
    """
    n = math.isqrt(lines.size(-1))
    added = lines.new_full((), eps)
    eye, ones = torch.eye(n, dtype=lines.dtype, device=lines.device), lines.new_ones(n, n)
    columns, rows = eye.repeat(n, n), torch.kron(eye, ones)
    for step in range(count):
        same = rows if step % 2 else columns
        sums = torch.addmm(added, lines, same)
        lines = lines / sums
        yield lines, sums, same


class _Divided(torch.autograd.Function):
    """The last quotients of `_divisions`. It stores only the first matrices; the backward pass divides again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(lines: Tensor, count: int, eps: float) -> Tensor:
        for divided, _, _ in _divisions(lines, count, eps):
            lines = divided
        return lines

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, float], output: Tensor) -> None:
        lines, ctx.count, ctx.eps = inputs
        ctx.save_for_backward(lines)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (lines,) = ctx.saved_tensors
        (of_lines,) = gradients
        with without_autocast(lines.device):
            for quotients, sums, same in reversed(list(_divisions(lines, ctx.count, ctx.eps))):
                of_lines = of_lines / sums
                of_lines = torch.addmm(of_lines, of_lines * quotients, same, alpha=-1)
        return of_lines, None, None
