"""Recognises errors of PyTorch, safetensors and onnxruntime that only their texts tell apart. Only this module reads
such texts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def out_of_memory(error: BaseException) -> bool:
    """Whether the error means that memory, of the host or a GPU, ran out."""
    texts = "can't allocate memory", "Failed to allocate memory"  # from PyTorch and onnxruntime
    if isinstance(error, MemoryError) or any(text in str(error) for text in texts):
        return True
    torch = sys.modules.get("torch")  # without it, its error can't occur
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


@contextmanager
def memory_as_mistake(advice: str) -> Iterator[None]:
    """Turns running out of memory into an error that says what to change.

    :param advice: words that follow "not enough memory", such as ": give a smaller batch_size".
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ValueError(f"not enough memory{advice}") from error


def lost_rank(error: RuntimeError) -> bool:
    """Whether the error means that another process of the group stopped; gloo raises a bare RuntimeError."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or "gloo" in str(error).lower()


def system_error(error: Exception, path: Path) -> OSError | None:
    """The OSError behind an error of torch.save or safetensors in writing `path`; None if there is none."""
    if isinstance(error.__context__, OSError):
        return error.__context__
    number = re.search(r"\(os error (\d+)\)", str(error))
    return number and OSError(int(number[1]), os.strerror(int(number[1])), str(path))


def refused_global(error: Exception) -> str | None:
    """The name that `torch.load(weights_only=True)` refused to load, from the text of its UnpicklingError."""
    refused = re.search(r"GLOBAL (\w\S*) (?:was not an allowed global|whose module)", str(error))
    return refused and refused[1]
