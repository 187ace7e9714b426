"""Linear maps with the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library
from rskip.cpu.packing import PackedMap, PackedMap8
from rskip.cpu.structures import Linear, Linear8, linear_work
from rskip.cpu.tensors import native_library


class Packed(nn.Module):
    """Base of linear maps whose weight is packed on first use. `packed` holds the result, which copies leave out."""

    def _unpack(self) -> None:
        self.packed: dict[str, Any] = {}  # a new dictionary when the weight may have changed

    def _pack(self, pack: Callable[..., Any], library: Library, *weights: Tensor | None) -> Any:
        if "native" not in self.packed:
            self.packed.setdefault("native", pack(library, *weights))  # keeps another thread's if that was faster
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


class PackedLinear(Packed, nn.Linear):
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

    def native_arguments(self, x: Tensor) -> Linear:
        """As `PackedMap.native_arguments`."""
        library = native_library(self.weight)
        assert library is not None
        return self._map(library).native_arguments(x)

    def _map(self, library: Library) -> PackedMap:
        packed: PackedMap = self._pack(PackedMap, library, self.weight, self.bias)
        return packed

    def forward(self, x: Tensor) -> Tensor:
        library = None if x.requires_grad else native_library(self.weight)
        if library is None:
            return functional.linear(x, self.weight, self.bias)
        return native_linear(library, self._map(library), x)


def native_linear(library: Library, linear: PackedMap | PackedMap8, x: Tensor) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    rows, output = x.numel() // linear.in_features, x.new_empty(*x.shape[:-1], linear.out_features)
    arguments: Linear | Linear8 = linear.native_arguments(x)
    arguments.point("output", output)
    kernel = library.map if isinstance(arguments, Linear) else library.map8
    kernel(arguments, rows, work=rows * linear_work(arguments))
    return output
