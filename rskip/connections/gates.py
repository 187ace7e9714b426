"""Gates: factors in (0, 1) that are computed from the data."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rskip.connections.linear import Fill, LinearMap
from rskip.connections.norms import at_least_float32


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
        self.reset_parameters()

    def reset_parameters(self, weight_init: Fill = nn.init.xavier_uniform_) -> None:
        """Fills the weights with `weight_init`; sets the last bias to its initial value and the hidden bias to 0."""
        if self.hidden is not None:
            self.hidden.reset_parameters(weight_init)
        self.output.reset_parameters(weight_init)

    def forward(self, z: Tensor) -> Tensor:
        if self.hidden is not None:
            z = torch.tanh(self.hidden(z))
        return torch.sigmoid(at_least_float32(self.output(z)))

    def extra_repr(self) -> str:
        return f"initial_bias={self.initial_bias}"
