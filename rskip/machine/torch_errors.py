"""What PyTorch, safetensors and onnxruntime say by an error's text alone. They have no type, number or attribute for
these, so the text is read here and nowhere else."""

from __future__ import annotations

import os
import re
from pathlib import Path


def out_of_memory(error: BaseException) -> bool:
    """Whether memory, the host's or a GPU's, was not enough: allocators of the CPU raise errors that stand for more."""
    import torch

    texts = "can't allocate memory", "Failed to allocate memory"  # of PyTorch and of onnxruntime
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(text in str(error) for text in texts)


def lost_rank(error: RuntimeError) -> bool:
    """Whether another process of the group stopped: gloo raises a bare RuntimeError."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error).lower()


def system_error(error: Exception, path: Path) -> OSError | None:
    """The system's error behind one of torch.save or safetensors, of writing `path`; None: there is none."""
    if isinstance(error.__context__, OSError):
        return error.__context__
    number = re.search(r"\(os error (\d+)\)", str(error))
    return number and OSError(int(number[1]), os.strerror(int(number[1])), str(path))


def refused_global(error: Exception) -> str | None:
    """What a pickle asks for that `torch.load(weights_only=True)` refused: it names it in an UnpicklingError's text."""
    refused = re.search(r"GLOBAL (\w\S*) (?:was not an allowed global|whose module)", str(error))
    return refused and refused[1]
