"""Dropout that is also fast on CPUs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes each element with probability `p` in training and scales the others by 1 / (1 - p).

    On CPUs torch draws one 32-bit number per element on one thread, a tenth of a small Transformer's training step.
    Here one 64-bit draw serves four elements, which rounds `p` to a multiple of 2⁻¹⁶ (docs/speed.md).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        count = x.numel()
        draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[:count] >= round(self.p * 2**16) - 2**15
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p)).view(x.shape)

    def extra_repr(self) -> str:
        return f"p={self.p}"
