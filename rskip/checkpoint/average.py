"""The average of checkpoints' parameters (Vaswani et al. 2017, section 6.1: the last of a run)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from rskip.checkpoint.checkpoint import Checkpoint, tied_names
from rskip.checkpoint.files import check_suffix, read_checkpoint, write_checkpoint

# Settings that may differ between checkpoints of one model: they matter in training alone.
_TRAINING_ALONE = re.compile(r".*drop.*|(checkpoint|offload)_activations|min_params_to_wrap")


def average_checkpoints(paths: Sequence[str | os.PathLike[str]]) -> Checkpoint:
    """The mean of every floating-point tensor, summed in float32 in the order given, as float32.

    Everything else (integer tensors, settings, fairseq's state) is that of the last file.
    One file is read at a time.

    :raises ValueError: the files are not of one model; the message says where they differ first.
    """
    if not paths:
        raise ValueError("no checkpoints to average")
    first: Checkpoint | None = None
    for path in map(Path, paths):
        checkpoint = read_checkpoint(path)
        if first is None:
            first, first_path = checkpoint, path
            total = {name: _start(tensor) for name, tensor in checkpoint.model.items()}
            tied = tied_names(checkpoint.model)
            continue
        _check_same_model(first, checkpoint, first_path, path)
        for name, tensor in checkpoint.model.items():
            if tensor.is_floating_point():
                total[name] += tensor
            else:
                total[name] = tensor
        other_tied = tied_names(checkpoint.model)
        tied = {name: stored for name, stored in tied.items() if other_tied.get(name) == stored}

    for tensor in total.values():
        if tensor.is_floating_point():
            tensor /= len(paths)
    total.update({name: total[stored] for name, stored in tied.items()})
    return Checkpoint(
        model=total,
        config=checkpoint.config,
        averaged_from=tuple(Path(path).name for path in paths),
        fairseq_state=checkpoint.fairseq_state,
    )


def average_to_file(
    inputs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes the average of `inputs` to `output`, in the format that its name says.

    :raises ValueError: as `average_checkpoints`; or the output is one of the inputs, or has no known suffix.
    """
    check_suffix(output)
    for path in inputs:
        if os.path.exists(output) and os.path.exists(path) and os.path.samefile(output, path):
            raise ValueError(f"{output} is one of the checkpoints to average: give another output")
    write_checkpoint(output, average_checkpoints(inputs), dtype=dtype)


def _start(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32, copy=True) if tensor.is_floating_point() else tensor


def _check_same_model(first: Checkpoint, other: Checkpoint, first_path: Path, other_path: Path) -> None:
    for here, there, here_path, there_path in (
        (first, other, first_path, other_path),
        (other, first, other_path, first_path),
    ):
        if missing := [name for name in here.model if name not in there.model]:
            raise ValueError(
                f"{there_path} has no {missing[0]!r}, but {here_path} has: average checkpoints of one model"
            )
    for name, tensor in first.model.items():
        shapes = tuple(tensor.shape), tuple(other.model[name].shape)
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{name!r} has the shape {shapes[1]} in {other_path}, but {shapes[0]} in {first_path}: "
                "average checkpoints of one model"
            )
    settings = [{"arch": each.config["arch"], **each.config["model"]} for each in (first, other)]
    for name in sorted(settings[0].keys() & settings[1].keys()):
        if settings[0][name] != settings[1][name] and not _TRAINING_ALONE.fullmatch(name):
            raise ValueError(
                f"{name} is {settings[1][name]!r} in {other_path}, but {settings[0][name]!r} in {first_path}"
                ": average checkpoints of one model"
            )
