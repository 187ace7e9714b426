"""The device that a user names, and what the processor computes well."""

from __future__ import annotations

import torch


def usable_device(device: str | torch.device) -> torch.device:
    """The device, with its number where the kind has one.

    :raises ValueError: there is no such device, or it can't hold values.
    """
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the device {str(device)!r} can't be used, try cpu: {reason}") from error
    if found.type == "meta":
        raise ValueError("the device 'meta' holds no weights, try cpu")
    return found


def multiplies_bfloat16() -> bool:
    """Whether oneDNN multiplies bfloat16 on this processor; it emulates it elsewhere, many times slower."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def bfloat16_is_slow(device: torch.device) -> bool:
    """Whether bfloat16 is slower than float32 there: on a CPU that doesn't multiply it."""
    return device.type == "cpu" and not multiplies_bfloat16()
