"""Sums and normalisations with the compiled kernels. R rows, C features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from rskip.connections import NormalisedSum
from rskip.cpu.structures import Residual, addresses


def residual_arguments(stated: NormalisedSum, x: Tensor, f: Tensor | None, output: Tensor) -> Residual:
    """The kernel's arguments for x, f and output (R, C). The output may be x or f. `branch_norm` is not used.

    :param f: None means 0.
    """
    norms: Sequence[Any] = stated.norms
    weights = [norm.weight for norm in norms]
    biases = [norm.bias for norm in norms if isinstance(norm, nn.LayerNorm)]
    if any(each.dtype != x.dtype for each in (*weights, *biases)):
        raise TypeError(f"x is {x.dtype}, but the norms are of another type: convert the whole model to one type")
    return Residual(
        x=x, f=f, output=output, weights=addresses(weights), biases=addresses(biases) if biases else None,
        features=x.size(1), norms=len(weights), scale=stated.scale, branch_scale=stated.branch_scale,
        epsilon=norms[0].eps if norms else 0.0,
    )  # fmt: skip
