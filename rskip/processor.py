"""What the processor computes well."""

from __future__ import annotations

import torch


def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 on this processor; it emulates it elsewhere, many times slower."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def bfloat16_is_slow(device: torch.device) -> bool:
    """Whether bfloat16 is slower than float32 there: on a CPU that doesn't multiply it."""
    return device.type == "cpu" and not multiplies_bfloat16()
