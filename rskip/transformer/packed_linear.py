"""Linear maps whose weights lie as the processor's matrix units read them."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.machine.device import multiplies_bfloat16
from rskip.native import native_library
from rskip.native.linear import native_linear

# Below so many multiplications the compiled kernel is the fastest, and without it in float32 the unpacked way
# (docs/speed.md).
_MOST_NATIVE = 2**22
_FEWEST_PACKED = {torch.float32: 2**22, torch.bfloat16: 0}


class PackedLinear(nn.Linear):
    """xWᵀ + b by oneDNN over weights packed once, for inference on a CPU. Shape: (..., in) -> (..., out).

    Takes over a linear map's parameters, and packs them when that is first needed: threads that both do it do the same.
    On another device, in another type, or where this torch has no oneDNN, it computes as `nn.Linear` does. Parameters
    that are written in place, other than by `load_state_dict`, are not seen.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._unpack()

    def _unpack(self) -> None:
        self._packed: Tensor | None = None
        packs = self.weight.device.type == "cpu" and _computes_in(self.weight.dtype)
        self._fewest = _FEWEST_PACKED[self.weight.dtype] if packs else math.inf

    def _packed_weight(self) -> Tensor:
        if self._packed is None:
            with torch.inference_mode(False), torch.no_grad():  # an ordinary tensor, for every later caller
                self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
        return self._packed

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._unpack()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unpack()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._unpack()
        return self

    def forward(self, x: Tensor) -> Tensor:
        weight, multiplications = self.weight, x.numel() * self.out_features
        library = native_library(weight)
        if library is not None and multiplications < _MOST_NATIVE and not x.requires_grad:
            return native_linear(library, x, weight, self.bias)
        if multiplications < self._fewest:
            return functional.linear(x, weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed_weight(), self.bias, "none", [], "")


def _computes_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies this type on this processor, an x86 one: others were not measured."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if dtype not in _FEWEST_PACKED or not x86 or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or multiplies_bfloat16()
