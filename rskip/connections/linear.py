"""Linear maps and gates that remember how to initialise themselves, and initial values given as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rskip.connections.norms import at_least_float32

Fill = Callable[[Tensor], object]
Values = float | Sequence[float] | Sequence[Sequence[float]]


def fill(parameter: Any, values: Values | Fill) -> None:
    """Sets a parameter to these values, to this number or with this function. It may be distributed (a DTensor)."""
    if callable(values):
        values(parameter)
        return
    if isinstance(values, (int, float)):
        nn.init.constant_(parameter, values)
        return
    with torch.no_grad():
        given: Tensor = torch.tensor(values, dtype=parameter.dtype, device=parameter.device)
        if hasattr(parameter, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            given = distribute_tensor(given, parameter.device_mesh, parameter.placements)
        parameter.copy_(given)


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

    :param first_weight: fills the weight; None: as `nn.Linear` does. Zeros stay, whatever a model's maps start as.
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
        if weight_init is None or self.first_weight is nn.init.zeros_:
            weight_init = self.first_weight
        if weight_init is None:
            nn.Linear.reset_parameters(self)  # type: ignore[arg-type]
        else:
            weight_init(self.weight)
        if self.first_bias is not None:
            nn.init.constant_(self.bias, self.first_bias)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Gate(nn.Module):
    """S(z) = σ(zW + b), or with a hidden layer S(z) = σ(tanh(zW_f + b_f)W_ff + b_ff).

    z is (..., inputs) with features last; on images each linear map then acts as a 1×1 convolution. S is
    (..., outputs), in float32 or better, because in half precision 1 - S vanishes for a gate that is nearly open.
    Source: Srivastava et al. 2015 (without hidden layer); SAS paper, Eq. 2 (with it).

    :param hidden: size of the hidden layer; None: no hidden layer.
    :param bias: initial value of b or b_ff; b_f starts at 0.

    Members: `hidden` (if there is one), `output`.
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: int | None = None, bias: float = 0) -> None:
        super().__init__()
        self.initial_bias = bias
        of_weight = nn.init.xavier_uniform_
        self.hidden = None if hidden is None else LinearMap(inputs, hidden, first_weight=of_weight, first_bias=0)
        self.output = LinearMap(hidden or inputs, outputs, first_weight=of_weight, first_bias=bias)
        for each in self.children():
            each.reset_parameters()  # type: ignore[operator]

    def forward(self, z: Tensor) -> Tensor:
        if self.hidden is not None:
            z = torch.tanh(self.hidden(z))
        return torch.sigmoid(at_least_float32(self.output(z)))

    def extra_repr(self) -> str:
        return f"initial_bias={self.initial_bias}"
