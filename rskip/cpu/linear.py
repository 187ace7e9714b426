"""Linear maps with the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library
from rskip.cpu.structures import Linear, Linear8, Packing
from rskip.cpu.tensors import native_library

_PRODUCTS_A_NUMBER = 16  # number of products that take as long as reading one value


class PackedLinear(nn.Linear):
    """xWᵀ + b over weights packed once, by the compiled kernels, for inference. Shape: (..., in) -> (..., out).

    It takes over a linear map's parameters and packs them on first use. If no kernel fits, such as on another device,
    it computes like `nn.Linear`. It does not notice parameters that are changed in place, except by `load_state_dict`,
    and then uses the old weights.
    """

    def __init__(self, linear: nn.Linear | LinearMap) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._unpack()

    def _unpack(self) -> None:
        self.packed: dict[str, Tensor] = {}  # a new dictionary when the weight may have changed

    def native_arguments(self, x: Tensor) -> Linear | None:
        """The kernel's arguments for this map of x (R, in), without the output's address; None if no kernel fits."""
        library = None if x.requires_grad else native_library(self.weight)
        return None if library is None else linear_arguments(x, self.weight, self._packed(library), self.bias)

    def _packed(self, library: Library) -> Tensor:
        if "native" not in self.packed:
            self.packed.setdefault("native", pack_weight(library, self.weight))  # keeps a faster thread's
        return self.packed["native"]

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._unpack()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unpack()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._unpack()
        return self

    def forward(self, x: Tensor) -> Tensor:
        library = None if x.requires_grad else native_library(self.weight)
        if library is None:
            return functional.linear(x, self.weight, self.bias)
        return native_linear(library, x, self.weight, self._packed(library), self.bias)


def pack_weight(library: Library, weight: Tensor) -> Tensor:
    """A contiguous weight in the layout that this processor's products read."""
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
    """The cost of one row, in values read."""
    return arguments.inputs * arguments.outputs // _PRODUCTS_A_NUMBER


def native_linear(library: Library, x: Tensor, weight: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    output = x.new_empty(*x.shape[:-1], weight.size(0))
    arguments, rows = linear_arguments(x, weight, packed, bias), x.numel() // weight.size(1)
    arguments.point("output", output)
    library.map(arguments, rows, work=rows * linear_work(arguments))
    return output
