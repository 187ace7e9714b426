"""Linear maps by the compiled kernels."""

from __future__ import annotations

from torch import Tensor

from rskip.native.library import TYPES, Library, Linear


def linear_arguments(
    x: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, *, relu: bool = False
) -> Linear:
    """Arguments of output = xWᵀ + b, or max(0, xWᵀ + b): x (R, in), W (out, in), output (R, out).

    All are contiguous and of one type, and must outlive the call.
    """
    outputs, inputs = weight.shape
    return Linear(
        x=x.data_ptr(), weight=weight.data_ptr(), bias=None if bias is None else bias.data_ptr(),
        output=output.data_ptr(), rows=x.numel() // inputs, inputs=inputs,
        outputs=outputs, relu=relu, type=TYPES[weight.dtype],
    )  # fmt: skip


def native_linear(library: Library, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    output = x.new_empty(*x.shape[:-1], weight.size(0))
    library.map(linear_arguments(x, weight, bias, output), weight.size(0))
    return output
