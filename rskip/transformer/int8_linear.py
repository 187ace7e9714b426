"""Linear maps in 8-bit integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_ZERO_POINT = 128  # of unsigned activations


class Int8Linear(nn.Module):
    """xWᵀ + b in 8-bit integers with 32-bit sums, for inference on a CPU. Shape: (..., in) -> (..., out), float32.

    Weights have one scale a feature of the output, activations one a row, taken from the row itself (dynamic
    quantisation), so that no row depends on its neighbours. Computed by oneDNN through the operators that PyTorch's
    own compiler lowers quantised models to.
    """

    weight: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
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
        scale = rows.abs().amax(1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny).div_(127)
        quantised = (rows / scale).add_(_ZERO_POINT + 0.5).to(torch.uint8)  # truncation rounds
        y = torch.ops.onednn.qlinear_pointwise(
            quantised, 1.0, _ZERO_POINT, self._packed, self.scales, self._zero_points, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        return y.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


@cache
def int8_is_exact() -> bool:
    """Whether oneDNN's sums of 8-bit products are exact here.

    On processors without VNNI two products are added in 16 bits first, which can overflow.
    """
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.onednn, "qlinear_prepack"):
        return False
    largest = nn.utils.skip_init(nn.Linear, 64, 64, bias=False)
    nn.init.ones_(largest.weight)
    try:
        return torch.allclose(Int8Linear(largest)(torch.ones(64, 64)), torch.full((64, 64), 64.0))
    except RuntimeError:  # oneDNN has no such product here
        return False
