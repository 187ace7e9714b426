"""A linear map that remembers how to initialise itself, so that resetting a model restores its initial values."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """`nn.Linear` whose `reset_parameters` restores the initial values that its owner chose.

    Trainers that build models on the meta device call `reset_parameters` of every module, in any order.

    first_weight: fills the weight; None: as `nn.Linear` does. first_bias: the bias's initial value; None: as
    `nn.Linear` does. gain: multiplies the weight.
    """

    first_weight: Callable[[Tensor], object] | None = None
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
