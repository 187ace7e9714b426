"""Linear maps by the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.cpu.library import Library, Linear, Linear8, Packing

_PRODUCTS_A_NUMBER = 16  # that take as long as a number that is read


def pack_weight(library: Library, weight: Tensor) -> Tensor:
    """A contiguous weight as this processor's products read it."""
    outputs, inputs = weight.shape
    packing = Packing(weight=weight, inputs=inputs, outputs=outputs)
    packed = torch.empty(library.packed_bytes(inputs, outputs, packing.type), dtype=torch.uint8)
    packing.point("packed", packed)
    library.pack(packing)
    return packed


def linear_arguments(x: Tensor, weight: Tensor, packed: Tensor, bias: Tensor | None) -> Linear:
    """Arguments of xWᵀ + b without the output. All tensors are contiguous and of one type."""
    outputs, inputs = weight.shape
    if x.size(-1) != inputs or x.dtype != weight.dtype:
        raise ValueError(f"x has {x.size(-1)} features of {x.dtype}: expected {inputs} of {weight.dtype}")
    return Linear(x=x, weight=packed, bias=bias, inputs=inputs, outputs=outputs)


def linear_work(arguments: Linear | Linear8) -> int:
    """What a row costs, in numbers that are read."""
    return arguments.inputs * arguments.outputs // _PRODUCTS_A_NUMBER


def native_linear(library: Library, x: Tensor, weight: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    output = x.new_empty(*x.shape[:-1], weight.size(0))
    arguments, rows = linear_arguments(x, weight, packed, bias), x.numel() // weight.size(1)
    arguments.point("output", output)
    library.map(arguments, rows, work=rows * linear_work(arguments))
    return output
