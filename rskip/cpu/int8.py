"""Linear maps in 8-bit integers, computed by the compiled kernels. R rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library, find_library
from rskip.cpu.linear import Packed, native_linear
from rskip.cpu.packing import PackedMap8, quantised
from rskip.cpu.structures import Linear8


class Int8Linear(Packed):
    """xWᵀ + b in 8-bit integers with 32-bit sums, for inference on a CPU. Shape: (..., in) -> (..., out), float32.

    Weights have one scale per output feature. Activations have one scale per row, computed from the row itself (dynamic
    quantisation), so no row depends on its neighbours.

    :param largest: maximum magnitude of the integer weights; None: the maximum that this processor adds exactly.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear | LinearMap, largest: int | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.largest = largest or largest_int8_weight()
        weight, scales = map(torch.from_numpy, quantised(linear.weight, self.largest))
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        self._unpack()

    def native_arguments(self, x: Tensor) -> Linear8:
        """As `PackedMap8.native_arguments`."""
        return self._map(self._library()).native_arguments(x)

    def _map(self, library: Library) -> PackedMap8:
        packed: PackedMap8 = self._pack(PackedMap8, library, self.weight, self.scales, self.bias)
        return packed

    def _library(self) -> Library:
        library = find_library().library
        if library is None or self.largest > library.largest_weight:
            problem = f"this processor can't add products of weights up to {self.largest} exactly"
            raise RuntimeError(f"{problem}: convert the model to int8 on this machine")
        return library

    def forward(self, x: Tensor) -> Tensor:
        library = self._library()
        return native_linear(library, self._map(library), x)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def largest_int8_weight() -> int:
    """The largest 8-bit weight whose products with activations this processor adds exactly; 0: it has no such product.

    It is 127, or on x86 without VNNI 64 (7 bits): there four products are added in 16 bits, which hold 4 · 127 · 64.
    """
    library = find_library().library
    return 0 if library is None else library.largest_weight


def in_int8(model: nn.Module) -> bool:
    """Whether the model's linear maps are in 8 bits. Small maps may stay in float32."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
