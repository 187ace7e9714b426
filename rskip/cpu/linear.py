"""Linear maps over packed weights, computed by the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library, find_library, native_library
from rskip.cpu.packing import PackedMap, PackedMap8, quantised
from rskip.cpu.structures import Linear, Linear8, linear_work


class Packed(nn.Module):
    """Base of linear maps whose weight is packed on first use. `packed` holds the result, which copies leave out."""

    _kind: ClassVar[type[PackedMap | PackedMap8]]
    _weights: ClassVar[tuple[str, ...]]
    weight: Tensor

    def __init__(self, linear: nn.Linear | LinearMap) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._unpack()

    def native_arguments(self, x: Tensor) -> Any:
        """As `PackedMap.native_arguments`."""
        library = self._library()
        assert library is not None
        return self._map(library).native_arguments(x)

    def _library(self) -> Library | None:
        return native_library(self.weight)

    def _map(self, library: Library) -> Any:
        if "native" not in self.packed:
            weights = (getattr(self, name) for name in self._weights)
            self.packed.setdefault("native", self._kind(library, *weights))  # another thread's if that was faster
        return self.packed["native"]

    def _unpack(self) -> None:
        self.packed: dict[str, Any] = {}  # a new dictionary when the weight may have changed

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


class PackedLinear(Packed, nn.Linear):
    """xWᵀ + b over weights packed once, by the compiled kernels, for inference. Shape: (..., in) -> (..., out).

    It takes over a linear map's parameters and packs them on first use. If no kernel fits, such as on another device,
    it computes like `nn.Linear`. It does not notice parameters that are changed in place, except by `load_state_dict`,
    and then uses the old weights.
    """

    _kind = PackedMap
    _weights = ("weight", "bias")

    def __init__(self, linear: nn.Linear | LinearMap) -> None:
        super().__init__(linear)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor) -> Tensor:
        library = None if x.requires_grad or x.dtype != self.weight.dtype else self._library()
        if library is None:
            return functional.linear(x, self.weight, self.bias)
        return native_linear(library, self._map(library), x)


class Int8Linear(Packed):
    """xWᵀ + b in 8-bit integers with 32-bit sums, for inference on a CPU. Shape: (..., in) -> (..., out), float32.

    Weights have one scale per output feature. Activations have one scale per row, computed from the row itself (dynamic
    quantisation), so no row depends on its neighbours.

    :param largest: maximum magnitude of the integer weights; None: the maximum that this processor adds exactly.
    """

    _kind = PackedMap8
    _weights = ("weight", "scales", "bias")
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear | LinearMap, largest: int | None = None) -> None:
        super().__init__(linear)
        self.largest = largest or largest_int8_weight()
        weight, scales = map(torch.from_numpy, quantised(linear.weight, self.largest))
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())

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


def native_linear(library: Library, linear: PackedMap | PackedMap8, x: Tensor) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    rows, output = x.numel() // linear.in_features, x.new_empty(*x.shape[:-1], linear.out_features)
    arguments: Linear | Linear8 = linear.native_arguments(x)
    arguments.point("output", output)
    kernel = library.map if isinstance(arguments, Linear) else library.map8
    kernel(arguments, rows, work=rows * linear_work(arguments))
    return output
