"""Linear maps in 8-bit integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from rskip.native import native_library
from rskip.native.int8 import native_quantised, native_rescale_

_ZERO_POINT = 128  # of unsigned activations
_TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
    """xWᵀ + b in 8-bit integers with 32-bit sums, for inference on a CPU. Shape: (..., in) -> (..., out), float32.

    Weights have one scale a feature of the output, activations one a row, taken from the row itself (dynamic
    quantisation), so that no row depends on its neighbours. Computed by oneDNN through the operators that PyTorch's
    own compiler lowers quantised models to.

    :param largest: weights are integers of at most this magnitude; None: what this processor adds exactly.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, largest: int | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=_TINY) / (largest or largest_int8_weight() or 127)
        self.register_buffer("weight", (weight / scales[:, None]).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float().clone())
        self._pack()

    def _pack(self) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(self.weight, None)
        self._zero_points = torch.zeros(self.out_features, dtype=torch.int)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pack()

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._pack()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        library = native_library(rows)
        quantised, scales = _quantised(rows) if library is None else native_quantised(library, rows)
        y = torch.ops.onednn.qlinear_pointwise(
            quantised, 1.0, _ZERO_POINT, self._packed, self.scales, self._zero_points, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        if library is not None:
            native_rescale_(library, y, scales, self.bias)
        else:
            y.mul_(scales[:, None])
            if self.bias is not None:
                y.add_(self.bias)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _quantised(rows: Tensor) -> tuple[Tensor, Tensor]:
    scales = rows.abs().amax(1).div_(127).clamp_(min=_TINY)
    # by way of int8: torch's conversion to uint8 is five times as slow
    return (rows / scales[:, None]).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(_ZERO_POINT), scales


@cache
def largest_int8_weight() -> int:
    """The largest 8-bit weight whose products with activations oneDNN adds exactly here; 0: it has no such product.

    127, or on x86 without VNNI 64, 7 bits: there two products are added in 16 bits, which hold 2 · 255 · 64.
    """
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
    """Whether linear maps of the model are in 8 bits: smaller ones, its output projection perhaps, are not."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
