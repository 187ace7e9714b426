"""Before and after a product of 8-bit integers, by the compiled kernels. R rows, C features."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.native.library import TYPES, Library, Quantised, Rescaled


def native_quantised(library: Library, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (R, C) in 8 bits, 128 being zero, and their scales (R,): the largest magnitude is 127 steps."""
    rows = rows.contiguous()
    output, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows))
    arguments = Quantised(
        x=rows.data_ptr(), output=output.data_ptr(), scales=scales.data_ptr(), features=rows.size(1),
        type=TYPES[rows.dtype],
    )  # fmt: skip
    library.quantise(arguments, len(rows), work=rows.numel())
    return output, scales


def native_rescale_(library: Library, sums: Tensor, scales: Tensor, bias: Tensor | None) -> None:
    """sums·scale + bias, in place: sums (R, C), contiguous, scales (R,), bias (C), all in float32."""
    arguments = Rescaled(
        sums=sums.data_ptr(), scales=scales.data_ptr(), bias=None if bias is None else bias.data_ptr(),
        features=sums.size(1),
    )  # fmt: skip
    library.rescale(arguments, len(sums), work=sums.numel())
