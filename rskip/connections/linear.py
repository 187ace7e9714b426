"""Linear maps that remember how to initialise themselves, so that resetting a model restores its initial values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Fill = Callable[[Tensor], object]


class Linear(nn.Linear):
    """`nn.Linear` whose `reset_parameters` restores the initial values that its owner chose.

    Trainers that build models on the meta device call `reset_parameters` of every module, in any order.

    `first_weight` fills the weight, and `first_bias` is the bias's initial value; None means as in `nn.Linear`.
    `gain` multiplies the initial weight.
    """

    first_weight: Fill | None = None
    first_bias: float | None = None
    gain: float = 1.0

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            if self.first_weight is not None:
                self.first_weight(self.weight)
            if self.first_bias is not None and self.bias is not None:
                self.bias.fill_(self.first_bias)
            if self.gain != 1:
                self.weight.mul_(self.gain)


class LinearMap(nn.Module):
    """xWᵀ + b within a connection. It is not an `nn.Linear`, because models overwrite the initial values of those.

    It starts as an `nn.Linear`; then its owner calls `reset_parameters`.

    :param first_weight: fills the weight; None: as `nn.Linear` does.
    :param first_bias: the bias's initial value; None: there is no bias.

    Members: `weight`, `bias` (if there is one).
    """

    def __init__(self, inputs: int, outputs: int, *, first_weight: Fill | None, first_bias: float | None) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        self.first_weight, self.first_bias = first_weight, first_bias
        drawn = nn.Linear(inputs, outputs, bias=first_bias is not None)
        self.weight, self.bias = drawn.weight, drawn.bias

    def reset_parameters(self, weight_init: Fill | None = None) -> None:
        """Sets the initial values. `weight_init` fills the weight instead of `first_weight`."""
        fill = weight_init or self.first_weight
        if fill is None:
            nn.Linear.reset_parameters(self)  # type: ignore[arg-type]
        else:
            fill(self.weight)
        if self.first_bias is not None:
            nn.init.constant_(self.bias, self.first_bias)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
