"""What PyTorch says by an error's text alone. It has no type, number or attribute for these, so the text is read here
and nowhere else."""

from __future__ import annotations

import re


def out_of_memory(error: BaseException) -> bool:
    """Whether memory, the host's or a GPU's, was not enough: the CPU's allocator raises a bare RuntimeError."""
    import torch

    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def lost_rank(error: RuntimeError) -> bool:
    """Whether another process of the group stopped: gloo raises a bare RuntimeError."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error).lower()


def refused_global(error: Exception) -> str | None:
    """What a pickle asks for that `torch.load(weights_only=True)` refused: it names it in an UnpicklingError's text."""
    refused = re.search(r"GLOBAL (\w\S*) (?:was not an allowed global|whose module)", str(error))
    return refused and refused[1]
