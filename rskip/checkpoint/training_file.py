"""Recognises the .pt files that `rskip vision train` and `rskip lm train` write. The module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WRITTEN_BY = {"vision": "rskip vision train", "language_modeling": "rskip lm train"}
_CHECKPOINT = {"settings", "optimiser", "iteration"}  # keys of every checkpoint.pt
_MODEL = {"config", "dataset", "iteration"}  # keys of an image model's model.pt


class TrainingFileError(ValueError):
    """Raised for a file of rskip's own training where a checkpoint of fairseq is expected."""


def task_of_training_file(content: Mapping[str, Any]) -> str | None:
    """The task whose training wrote a .pt file with this content; None for any other file."""
    if content.keys() >= _CHECKPOINT:
        return "language_modeling" if "text" in content else "vision"
    return "vision" if content.keys() >= _MODEL else None


def refuse_training_file(path: Path, content: Mapping[str, Any]) -> None:
    """:raises TrainingFileError: rskip's own training wrote the file. The error names what to give instead."""
    if (task := task_of_training_file(content)) is not None:
        evaluated = ", or evaluate the file with `rskip vision evaluate`" if task == "vision" else ""
        raise TrainingFileError(
            f"{path} was written by `{_WRITTEN_BY[task]}`: give the folder of the finished training run, {path.parent}"
            + evaluated
        )
