"""The device that a user names, found to be there."""

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
