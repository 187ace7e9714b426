"""Manages the folder of a training, and the checkpoint.pt from which it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from rskip.files.state import as_state, read_state
from rskip.files.torch_file import read_torch_file
from rskip.settings.check import to_plain
from rskip.settings.kinds import Count, Whole
from rskip.tasks.loop_folder import LoopFolder, Session, save_whole
from rskip.vision.data.own_images import ImageDescription
from rskip.vision.settings import Precision, without_removed
from rskip.vision.training.curve import CurvePoint, MeterState


class _LaterSettings(TypedDict, total=False):
    flip: bool


class BegunWith(_LaterSettings):
    """The settings with which a training began. Only the keys that rskip reads are declared."""

    precision: Precision
    compile: bool


class _Begun(TypedDict):
    settings: BegunWith


class TrainingFolder(LoopFolder):
    """The folder of an image model's training."""

    def begun_with(self) -> BegunWith | None:
        """The settings in run.json; None if the file doesn't exist.

        :raises SettingError: the file is damaged.
        """
        if not self.settings.is_file():
            return None
        advice = f"move {self.path} away to start again"
        return read_state(self.settings, _Begun, advice=advice)["settings"]


class _Buffers(TypedDict):
    momentum_buffer: Tensor


class _Group(TypedDict):
    params: list[int]


class Optimiser(TypedDict):
    """The state dict of SGD. Only the keys that rskip reads are declared."""

    state: dict[int, _Buffers]
    param_groups: list[_Group]


class _Generators(TypedDict, total=False):
    cuda: Tensor


class Generators(_Generators):
    """The states of the random number generators."""

    cpu: Tensor


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint:
    """A training's state after an iteration. The fields have the names of the file's keys.

    settings, seed, processes: `TrainingSettings.to_dict()`, the random seed and the number of processes. Only a
    training with the same values resumes from it. iteration, iterations: the number of completed iterations, and the
    length of the training. model, optimiser: state dicts.
    rng: states of torch's random numbers, "cpu" and, on a GPU, "cuda".
    meter: sums since the last point of the curve, and "seconds" since then.
    curve: the points so far, as in curve.jsonl.
    seconds: duration of the training so far.
    pieces: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    config, classes, images: the model's config, the names of the classes and the description of your own images.
    """

    settings: dict[str, Any]
    seed: int
    processes: Count
    iteration: Whole
    iterations: Count
    model: dict[str, Tensor]
    optimiser: Optimiser
    rng: Generators
    meter: MeterState
    curve: list[CurvePoint]
    seconds: float
    pieces: list[Session]
    config: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    images: ImageDescription | None = None


def write_training_checkpoint(path: Path, checkpoint: TrainingCheckpoint) -> None:
    """Writes the file atomically.

    :raises OSError: the disk is full, or there is no permission. The earlier file stays.
    """
    content = {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}
    if checkpoint.images is None:
        content = {name: value for name, value in content.items() if name not in ("config", "classes", "images")}
    else:
        content["images"] = to_plain(checkpoint.images)
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
    content = read_torch_file(path, kind="file of `rskip vision train`", advice=f"; {advice}")
    return as_state(content, TrainingCheckpoint, source=str(path), advice=advice)


def check_same_training(
    path: Path, checkpoint: TrainingCheckpoint, *, settings: Mapping[str, Any], seed: int, processes: int
) -> None:
    """:raises ValueError: the checkpoint is from a training with other settings. The error lists them."""
    there = {**without_removed(checkpoint.settings), "seed": checkpoint.seed, "processes": checkpoint.processes}
    now = {**settings, "seed": seed, "processes": processes}
    for each in (there, now):
        each.pop("data", None)  # the images, not the folder's path, are compared
    differing = [name for name in {**there, **now} if there.get(name) != now.get(name)]
    if differing:
        listed = "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in differing)
        raise ValueError(
            f"{path} is from a training with other settings ({listed}): give another folder, or the same settings"
        )


def check_same_images(path: Path, there: ImageDescription | None, now: ImageDescription) -> None:
    """:raises ValueError: the checkpoint is from a training on other images."""
    if there is None or (there.sha256, there.size) != (now.sha256, now.size):
        known, ours = ("" if each is None else f"{each.name}, {_counted(each)}" for each in (there, now))
        raise ValueError(
            f"{path} is from a training on other images ({known}) than these ({ours}): give another "
            "folder for --output, or the same images"
        )


def _counted(images: ImageDescription) -> str:
    return ", ".join(f"{count:,} {part}" for part, count in images.counts.items())
