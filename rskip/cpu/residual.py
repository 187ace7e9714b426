"""Sums and normalisations with the compiled kernels. R rows, C features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections.first_gain import kind_of
from rskip.cpu.structures import Residual, addresses
from rskip.kernel_forms import NormalisedSum


def residual_arguments(
    stated: NormalisedSum, x: Tensor, f: Tensor | None, output: Tensor, *, parts: int = 1
) -> Residual:
    """The kernel's arguments for x, f and output (R, C). The output may be x or f.

    Of the stated sum, they have the normalisations after the sum, the scales and the shares.

    :param f: None means 0.
    :param parts: number of parts of a row, such as heads, which are computed one by one.
    """
    norms: Sequence[Any] = stated.norms
    features = x.size(1) // parts
    weights = [norm.weight for norm in norms]
    biases = [norm.bias for norm in norms if issubclass(kind_of(norm), nn.LayerNorm)]
    if any(each.dtype != x.dtype for each in (*weights, *biases)):
        raise TypeError(f"x is {x.dtype}, but the norms are of another type: convert the whole model to one type")
    (scale, scales), (branch_scale, branch_scales) = (
        (1.0, _values(each, features)) if isinstance(each, Tensor) else (each, None)
        for each in (stated.scale, stated.branch_scale)
    )
    return Residual(
        x=x, f=f, output=output, weights=addresses(weights), biases=addresses(biases) if biases else None,
        scales=scales, branch_scales=branch_scales, features=features, norms=len(weights), parts=parts, scale=scale,
        shares=None if stated.shares is None else _values(stated.shares, len(weights)), branch_scale=branch_scale,
        epsilon=norms[0].eps if norms else 0.0,
    )  # fmt: skip


def _values(given: Tensor, count: int) -> Tensor:
    return given.detach().to(torch.float32).expand(count).contiguous()
