"""Reading and writing a checkpoint in the format that its file's name says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from rskip.checkpoint.checkpoint import Checkpoint, cast_floats
from rskip.checkpoint.fairseq_file import read_fairseq, write_fairseq
from rskip.checkpoint.safetensors_file import read_safetensors, write_safetensors

_FORMATS = {".pt": (read_fairseq, write_fairseq), ".safetensors": (read_safetensors, write_safetensors)}


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint onto the CPU: fairseq's from a .pt file, ours from a .safetensors file.

    :raises FileNotFoundError: no file there.
    :raises ValueError: another suffix, or a file that is not what its suffix says.
    """
    path = Path(path)
    read, _ = _format(path)
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint file {path}")
    return read(path)


def write_checkpoint(
    path: str | os.PathLike[str], checkpoint: Checkpoint, *, dtype: torch.dtype | None = None
) -> None:
    """Writes a checkpoint whole or not at all: .pt for fairseq, .safetensors to keep and to publish.

    :param dtype: floating-point tensors are stored so; None: as they are.
    :raises ValueError: another suffix, or a value out of the range of `dtype`.
    """
    path = Path(path)
    _, write = _format(path)
    if dtype is not None:
        checkpoint = Checkpoint(
            model=cast_floats(checkpoint.model, dtype),
            config=checkpoint.config,
            averaged_from=checkpoint.averaged_from,
            fairseq_state=checkpoint.fairseq_state,
        )
    write(path, checkpoint)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """:raises ValueError: the file's name says no format that a checkpoint can have."""
    _format(Path(path))


def _format(path: Path) -> tuple[Callable[[Path], Checkpoint], Callable[[Path, Checkpoint], None]]:
    if path.suffix not in _FORMATS:
        raise ValueError(f"{path}: the name of a checkpoint ends in {' or '.join(_FORMATS)}")
    return _FORMATS[path.suffix]
