"""A linear map that keeps its initial values, so that a model which starts anew starts as it was built."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """`nn.Linear` whose `reset_parameters` gives the values that its owner started it with.

    Trainers that build on the meta device call `reset_parameters` of every module, in an order that is theirs.

    first_weight: fills the weight; None: as `nn.Linear`. first_bias: likewise, a number. gain: multiplies the weight.
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
