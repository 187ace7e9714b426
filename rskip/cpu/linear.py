"""Linear maps with the compiled kernels. Shapes: x (R, in), W (out, in), y (R, out)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library
from rskip.cpu.packing import linear_arguments, pack_weight
from rskip.cpu.structures import Linear, linear_work
from rskip.cpu.tensors import native_library


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
        self.packed: dict[str, Any] = {}  # a new dictionary when the weight may have changed

    def native_arguments(self, x: Tensor) -> Linear | None:
        """The kernel's arguments for this map of x (R, in), without the output's address; None if no kernel fits."""
        library = None if x.requires_grad else native_library(self.weight)
        return None if library is None else linear_arguments(x, self.weight, self._packed(library), self.bias)

    def _packed(self, library: Library) -> Any:
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


def native_linear(library: Library, x: Tensor, weight: Tensor, packed: Any, bias: Tensor | None) -> Tensor:
    """xWᵀ + b. Shape: (..., in) -> (..., out)."""
    x = x.contiguous()
    output = x.new_empty(*x.shape[:-1], weight.size(0))
    arguments, rows = linear_arguments(x, weight, packed, bias), x.numel() // weight.size(1)
    arguments.point("output", output)
    library.map(arguments, rows, work=rows * linear_work(arguments))
    return output
