"""Linear maps in 8-bit integers, computed by the compiled kernels. R rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rskip.connections.linear import LinearMap
from rskip.cpu.library import Library, find_library
from rskip.cpu.packing import PackedWeight8
from rskip.cpu.structures import Linear8, linear_work

_QUANTISED_AT_ONCE = 2**22  # number of weights
_TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
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
        self.register_buffer("weight", torch.empty(self.out_features, self.in_features, dtype=torch.int8))
        self.register_buffer("scales", torch.empty(self.out_features))
        rows = max(1, _QUANTISED_AT_ONCE // self.in_features)
        pieces = (each.split(rows) for each in (linear.weight.detach(), self.weight, self.scales))
        for given, weight, scales in zip(*pieces, strict=True):
            given = given.float()
            scales.copy_(given.abs().amax(1).clamp(min=_TINY) / self.largest)
            weight.copy_((given / scales[:, None]).round())
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        self._unpack()

    def _unpack(self) -> None:
        self.packed: dict[str, PackedWeight8] = {}  # a new dictionary when the weight may have changed

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unpack()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._unpack()

    def native_arguments(self, x: Tensor) -> Linear8:
        """The kernel's arguments for this map of x (R, in), without the output's address."""
        if "native" not in self.packed:
            weight = PackedWeight8(self._library(), self.weight, self.scales, self.bias)
            self.packed.setdefault("native", weight)  # keeps another thread's weight if that thread was faster
        return self.packed["native"].arguments(x)

    def _library(self) -> Library:
        library = find_library().library
        if library is None or self.largest > library.largest_weight:
            problem = f"this processor can't add products of weights up to {self.largest} exactly"
            raise RuntimeError(f"{problem}: convert the model to int8 on this machine")
        return library

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features).contiguous()
        y = native_linear8(self._library(), self.native_arguments(rows), len(rows))
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def native_linear8(library: Library, arguments: Linear8, rows: int) -> Tensor:
    """The product. Shape: (R, out)."""
    output = torch.empty(rows, arguments.outputs)
    arguments.point("output", output)
    library.map8(arguments, rows, work=rows * linear_work(arguments))
    return output


def largest_int8_weight() -> int:
    """The largest 8-bit weight whose products with activations this processor adds exactly; 0: it has no such product.

    It is 127, or on x86 without VNNI 64 (7 bits): there four products are added in 16 bits, which hold 4 · 127 · 64.
    """
    library = find_library().library
    return 0 if library is None else library.largest_weight


def in_int8(model: nn.Module) -> bool:
    """Whether the model's linear maps are in 8 bits. Small maps may stay in float32."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
