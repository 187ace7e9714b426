"""Initial values given as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def fill(parameter: Any, values: Tensor | Sequence[float] | Sequence[Sequence[float]]) -> None:
    """Sets a parameter to these values. The parameter may be distributed (a DTensor)."""
    with torch.no_grad():
        given: Tensor = torch.as_tensor(values, dtype=parameter.dtype, device=parameter.device)
        if hasattr(parameter, "device_mesh"):
            from torch.distributed.tensor import distribute_tensor

            given = distribute_tensor(given, parameter.device_mesh, parameter.placements)
        parameter.copy_(given)


def one_hot(index: int, size: int, value: float = 1.0) -> list[float]:
    """`size` numbers: `value` at this index, which may be negative, and 0 elsewhere."""
    values = [0.0] * size
    values[index] = value
    return values
