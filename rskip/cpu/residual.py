"""Sums and normalisations with the compiled kernels. R rows, C features."""

from __future__ import annotations

from typing import Any

import numpy as np

from rskip.cpu.structures import Residual, addresses, kind_of
from rskip.kernel_forms import NormalisedSum


def residual_arguments(stated: NormalisedSum, x: Any, f: Any, output: Any, *, parts: int = 1) -> Residual:
    """The kernel's arguments for x, f and output (R, C). The output may be x or f.

    Of the stated sum, they have the normalisations after the sum, the scales and the shares.

    :param f: None means 0.
    :param parts: number of parts of a row, such as heads, which are computed one by one.
    """
    norms = stated.norms
    features = x.shape[1] // parts
    weights = [norm.weight for norm in norms]
    biases = [norm.bias for norm in norms if getattr(norm, "bias", None) is not None]
    assert all(kind_of(each) == kind_of(x) for each in (*weights, *biases)), "convert the whole model to one type"
    (scale, scales), (branch_scale, branch_scales) = (
        (each, None) if isinstance(each, (int, float)) else (1.0, in_float32(each, features))
        for each in (stated.scale, stated.branch_scale)
    )
    return Residual(
        x=x, f=f, output=output, weights=addresses(weights), biases=addresses(biases) if biases else None,
        scales=scales, branch_scales=branch_scales, features=features, norms=len(weights), parts=parts, scale=scale,
        shares=None if stated.shares is None else in_float32(stated.shares, len(weights)), branch_scale=branch_scale,
        epsilon=norms[0].eps if norms else 0.0,
    )  # fmt: skip


def in_float32(values: Any, count: int) -> np.ndarray:
    """One value or `count` values, an array or a tensor, as `count` values in float32."""
    if hasattr(values, "detach"):
        values = values.detach().float().numpy()
    return np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.float32), (count,)))
