"""A training's files, written by torch.save, read back without running a pickle."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import torch

# what torch.load raises where a file is damaged
_READ_ERRORS = (
    RuntimeError, pickle.UnpicklingError, struct.error, EOFError, ValueError, LookupError, AttributeError, TypeError,
    AssertionError, OSError,
)  # fmt: skip


def read_torch_file(path: Path, *, advice: str = "") -> dict[str, Any]:
    """The mapping that the file holds, its tensors on the CPU.

    :param advice: the end of the message where it can't be read.
    :raises ValueError: it is cut off, damaged or none of ours.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _READ_ERRORS as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file itself; one without a name is of what is in it
        raise ValueError(
            f"{path} can't be read: it is cut off, damaged, or no file of `rskip vision train`{advice}"
        ) from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise ValueError(f"{path} is no file of `rskip vision train`: it holds a {kind}{advice}")
    return content
