"""Linear maps whose weights lie as the processor's matrix units read them."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.cpu import native_library
from rskip.cpu.library import Library, Linear
from rskip.cpu.linear import linear_arguments, native_linear, pack_weight
from rskip.machine.device import multiplies_bfloat16, multiplies_bfloat16_in_tiles

# From so many multiplications on oneDNN's products are the faster ones: in AMX's units, and in float32 without the
# compiled kernels than unpacked ones (docs/speed.md).
MANY = 2**22


class PackedLinear(nn.Linear):
    """xWᵀ + b over weights packed once, by the compiled kernels or oneDNN, for inference on a CPU.

    Shape: (..., in) -> (..., out). Takes over a linear map's parameters and packs them at the first use. On another
    device, or for a type that neither library multiplies here, it computes like `nn.Linear`. If parameters are changed
    in place by anything but `load_state_dict`, the module doesn't notice and uses the old weights.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._unpack()

    def _unpack(self) -> None:
        # the weight as oneDNN and as the compiled kernels read it; another dictionary where it may be another weight
        self.packed: dict[str, Tensor] = {}

    def native_arguments(self, x: Tensor) -> Linear | None:
        """The compiled kernel's arguments for this map of x (R, in), but for where the output goes.

        None where that is not the way to compute this.
        """
        library = self._library(x)
        if library is None:
            return None
        return linear_arguments(x, self.weight, self._natively_packed(library), self.bias)

    def _library(self, x: Tensor) -> Library | None:
        many = x.numel() * self.out_features >= MANY
        in_tiles = many and self.weight.dtype == torch.bfloat16 and multiplies_bfloat16_in_tiles()
        return None if in_tiles or x.requires_grad else native_library(self.weight)

    def _natively_packed(self, library: Library) -> Tensor:
        if "native" not in self.packed:
            self.packed.setdefault("native", pack_weight(library, self.weight))  # keeps a faster thread's
        return self.packed["native"]

    def _packed_by_onednn(self) -> Tensor:
        if "onednn" not in self.packed:
            with torch.inference_mode(False), torch.no_grad():  # an ordinary tensor, for every later caller
                self.packed.setdefault("onednn", torch.ops.mkldnn._reorder_linear_weight(self.weight.detach()))
        return self.packed["onednn"]

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
        many = x.numel() * self.out_features >= MANY
        library = None if many and torch.get_num_threads() > 1 else self._library(x)  # beside PyTorch's waiting threads
        if library is not None:
            return native_linear(library, x, self.weight, self._natively_packed(library), self.bias)
        few = self.weight.dtype == torch.float32 and not many
        if few or self.weight.device.type != "cpu" or not _computes_in(self.weight.dtype):
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed_by_onednn(), self.bias, "none", [], "")


@cache
def _computes_in(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies this type on this processor, an x86 one: others were not measured."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and multiplies_bfloat16())
