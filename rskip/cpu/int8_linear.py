"""Linear maps in 8-bit integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rskip.cpu import find_library, native_library
from rskip.cpu.int8 import PackedWeight8, native_linear8, native_quantised, native_rescale_
from rskip.cpu.library import Library, Linear8
from rskip.cpu.packed_linear import MANY
from rskip.machine.device import multiplies_bfloat16_in_tiles

_ZERO_POINT = 128  # of unsigned activations
_TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
    """xWᵀ + b in 8-bit integers with 32-bit sums, for inference on a CPU. Shape: (..., in) -> (..., out), float32.

    Weights have one scale a feature of the output, activations one a row, taken from the row itself (dynamic
    quantisation), so that no row depends on its neighbours. Computed by the compiled kernels, or by oneDNN through the
    operators that PyTorch's own compiler lowers quantised models to.

    :param largest: weights are integers of at most this magnitude; None: what this processor adds exactly.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, largest: int | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.largest = largest or largest_int8_weight() or 127
        weight = linear.weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=_TINY) / self.largest
        self.register_buffer("weight", (weight / scales[:, None]).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        self._unpack()

    def _unpack(self) -> None:
        # what the products read; another dictionary where it may be of another weight
        self.packed: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._unpack()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._unpack()

    def native_arguments(self, x: Tensor) -> Linear8 | None:
        """The compiled kernel's arguments for this map of x (R, in), but for where the output goes.

        None where that is not the way to compute this.
        """
        library = self._library(x)
        if library is None:
            return None
        if "native" not in self.packed:
            weight = PackedWeight8(library, self.weight, self.scales, self.bias)
            self.packed.setdefault("native", weight)  # keeps another thread's weight if that thread was faster
        return self.packed["native"].arguments(x)

    def _library(self, x: Tensor) -> Library | None:
        if x.numel() * self.out_features >= MANY and multiplies_bfloat16_in_tiles():  # and 8 bits too
            return None
        library = native_library(self.scales)
        return library if library is not None and self.largest <= library.largest_weight else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features).contiguous()
        library, native = native_library(rows), self.native_arguments(rows)
        if library is not None and native is not None:
            y = native_linear8(library, native, len(rows))
        else:
            y = self._by_onednn(rows, library)
        return y.view(*x.shape[:-1], self.out_features)

    def _by_onednn(self, rows: Tensor, library: Library | None) -> Tensor:
        if "onednn" not in self.packed:
            zero_points = torch.zeros(self.out_features, dtype=torch.int)
            self.packed |= {"onednn": torch.ops.onednn.qlinear_prepack(self.weight, None), "zero_points": zero_points}
        quantised, scales = _quantised(rows) if library is None else native_quantised(library, rows)
        y = torch.ops.onednn.qlinear_pointwise(
            quantised, 1.0, _ZERO_POINT, self.packed["onednn"], self.scales, self.packed["zero_points"], None, 1.0, 0,
            torch.float32, "none", [], "",
        )  # fmt: skip
        if library is not None:
            native_rescale_(library, y, scales, self.bias)
            return y
        y.mul_(scales[:, None])
        return y if self.bias is None else y.add_(self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = rows.abs().amax(1).div_(127).clamp_(min=_TINY)
    # by way of int8: torch's conversion to uint8 is five times as slow
    return (rows / scales[:, None]).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(_ZERO_POINT), scales


@cache
def largest_int8_weight() -> int:
    """The largest 8-bit weight whose products with activations are added exactly here; 0: there is no such product.

    127, or on x86 without VNNI 64, 7 bits: there two products are added in 16 bits, which hold 2 · 255 · 64.
    """
    library = find_library().library
    if library is not None and library.largest_weight:
        return library.largest_weight
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.onednn, "qlinear_prepack"):
        return 0
    ones = nn.utils.skip_init(nn.Linear, 64, 64, bias=False)
    nn.init.ones_(ones.weight)
    try:
        for largest in (127, 64):
            if torch.allclose(Int8Linear(ones, largest)(torch.ones(64, 64)), torch.full((64, 64), 64.0)):
                return largest
    except RuntimeError:  # oneDNN has no such product here
        pass
    return 0


def in_int8(model: nn.Module) -> bool:
    """Whether linear maps of the model are in 8 bits: smaller ones may not be."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
