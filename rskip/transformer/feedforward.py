"""The position-wise feed-forward branch's activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _identity(x: Tensor) -> Tensor:
    return x


ACTIVATION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_accurate": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "tanh": torch.tanh,
    "linear": _identity,
    "swish": functional.silu,
}
