"""Products of 8-bit integers, and what goes before and after them, by the compiled kernels. R rows, C features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from rskip.cpu.library import Library, Linear8, Packing8, Quantised, Rescaled
from rskip.cpu.linear import linear_work

_ZERO_POINT = 128  # of rows in 8 bits
_MOST_AT_ONCE = 32  # features of the output


def native_quantised(library: Library, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (R, C) in 8 bits, 128 being zero, and their scales (R,): the largest magnitude is 127 steps."""
    rows = rows.contiguous()
    output, scales = torch.empty(rows.shape, dtype=torch.uint8), torch.empty(len(rows))
    arguments = Quantised(x=rows, output=output, scales=scales, features=rows.size(1))
    library.quantise(arguments, len(rows), work=rows.numel())
    return output, scales


def native_rescale_(library: Library, sums: Tensor, scales: Tensor, bias: Tensor | None) -> None:
    """sums·scale + bias, in place: sums (R, C), contiguous, scales (R,), bias (C), all in float32."""
    if scales.shape != sums.shape[:1] or (bias is not None and bias.shape != sums.shape[1:]):
        raise ValueError(f"sums are {tuple(sums.shape)}: expected one scale per row and one bias per feature")
    arguments = Rescaled(sums=sums, scales=scales, bias=bias, features=sums.size(1))
    library.rescale(arguments, len(sums), work=sums.numel())


class PackedWeight8:
    """A weight (out, in) of 8-bit integers with a scale (out,) each, and the bias, as products read them."""

    def __init__(self, library: Library, weight: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        self.outputs, self.inputs = weight.shape
        self.weight = torch.empty(library.packed_bytes8(self.inputs, self.outputs), dtype=torch.uint8)
        offsets = _ZERO_POINT * weight.sum(1, dtype=torch.int32)
        self.scales, self.offsets = _padded(scales), _padded(offsets)
        self.bias = None if bias is None else _padded(bias)
        weight = weight.contiguous()
        library.pack8(Packing8(weight=weight, packed=self.weight, inputs=self.inputs, outputs=self.outputs))

    def arguments(self, x: Tensor) -> Linear8:
        """Arguments of the product with x (R, in), float32 and contiguous, without the output."""
        if x.size(-1) != self.inputs:
            raise ValueError(f"x has {x.size(-1)} features: expected {self.inputs}")
        return Linear8(
            x=x, weight=self.weight, scales=self.scales, bias=self.bias, offsets=self.offsets,
            inputs=self.inputs, outputs=self.outputs,
        )  # fmt: skip


def _padded(values: Tensor) -> Tensor:
    return functional.pad(values, (0, -len(values) % _MOST_AT_ONCE))


def native_linear8(library: Library, arguments: Linear8, rows: int) -> Tensor:
    """The product. Shape: (R, out)."""
    output = torch.empty(rows, arguments.outputs)
    arguments.point("output", output)
    library.map8(arguments, rows, work=rows * linear_work(arguments))
    return output
