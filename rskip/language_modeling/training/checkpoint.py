"""Reads and writes checkpoint.pt, from which a training resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from rskip.files.state import as_state
from rskip.files.torch_file import read_torch_file
from rskip.language_modeling.training.curve import CurvePoint
from rskip.settings.kinds import Count, Whole
from rskip.tasks.loop_folder import Session, save_whole


class _Moments(TypedDict):
    exp_avg: Tensor
    exp_avg_sq: Tensor
    step: Tensor


class _Group(TypedDict):
    params: list[int]


class Optimiser(TypedDict):
    """The state dict of AdamW. Only the keys that rskip reads are declared."""

    state: dict[int, _Moments]
    param_groups: list[_Group]


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint:
    """A training's state after an iteration. The fields have the names of the file's keys.

    Random numbers need no state: those of an iteration depend on seed and iteration only.

    settings, seed, processes, text: `TrainingSettings.to_dict()`, the random seed, the number of processes and the
    checksum of the data. Only a training with the same values resumes from it.
    loss, tokens, seconds: sums since the last point of the curve: loss of the training tokens, their number, and the
    time without evaluations.
    sessions: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    """

    settings: dict[str, Any]
    seed: int
    processes: Count
    text: str
    iteration: Whole
    model: dict[str, Tensor]
    optimiser: Optimiser
    loss: float
    tokens: Whole
    seconds: float
    curve: list[CurvePoint]
    sessions: list[Session]


def write_training_checkpoint(path: Path, checkpoint: TrainingCheckpoint) -> None:
    """Writes the file atomically.

    :raises OSError: the disk is full, or there is no permission. The earlier file stays.
    """
    content = {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}
    content["curve"] = [asdict(point) for point in checkpoint.curve]
    kept = "the previous checkpoint is kept" if path.exists() else "there is no earlier checkpoint"
    save_whole(path, content, consequence=f"{kept}: free some space and repeat the command to resume")


def read_training_checkpoint(path: Path) -> TrainingCheckpoint | None:
    """The checkpoint on the CPU; None if it does not exist. It runs no pickle.

    :raises ValueError: the file is truncated, damaged or not a checkpoint.
    """
    if not path.exists():
        return None
    advice = "move it away to start again"
    content = read_torch_file(path, kind="checkpoint of a language model's training", advice=f"; {advice}")
    return as_state(content, TrainingCheckpoint, source=str(path), advice=advice)


def check_same_training(path: Path, checkpoint: TrainingCheckpoint, now: Mapping[str, Any]) -> None:
    """Checks that the checkpoint is from the same training.

    :param now: settings, seed, processes and text, in one mapping.
    :raises ValueError: it is not. The error lists the differing settings.
    """
    keys = ("seed", "processes", "text")
    there = {**checkpoint.settings, **{key: getattr(checkpoint, key) for key in keys}}
    differing = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    if differing:
        listed = "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in differing)
        raise ValueError(
            f"{path} is from a training with other settings ({listed}): give another folder, or the same settings"
        )
