"""Linear maps by the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.native.library import TYPES, Library, Linear, Linear8, Packing

_PRODUCTS_A_NUMBER = 16  # that take as long as a number that is read


def pack_weight(library: Library, weight: Tensor) -> Tensor:
    """A contiguous weight as this processor's products read it."""
    outputs, inputs = weight.shape
    packed = torch.empty(library.packed_bytes(inputs, outputs, TYPES[weight.dtype]), dtype=torch.uint8)
    library.pack(
        Packing(
            weight=weight.data_ptr(), packed=packed.data_ptr(), inputs=inputs, outputs=outputs, type=TYPES[weight.dtype]
        )
    )
    return packed


def linear_arguments(x: Tensor, weight: Tensor, packed: Tensor, bias: Tensor | None) -> Linear:
    """Arguments of xWᵀ + b but for its output: contiguous, of one type, and to outlive the call."""
    outputs, inputs = weight.shape
    return Linear(
        x=x.data_ptr(), weight=packed.data_ptr(), bias=None if bias is None else bias.data_ptr(),
        inputs=inputs, outputs=outputs, type=TYPES[weight.dtype],
    )  # fmt: skip


def linear_work(arguments: Linear | Linear8) -> int:
    """What a row costs, in numbers that are read."""
    return arguments.inputs * arguments.outputs // _PRODUCTS_A_NUMBER


def native_linear(library: Library, x: Tensor, weight: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    output = x.new_empty(*x.shape[:-1], weight.size(0))
    arguments, rows = linear_arguments(x, weight, packed, bias), x.numel() // weight.size(1)
    arguments.output = output.data_ptr()
    library.map(arguments, rows, work=rows * linear_work(arguments))
    return output
