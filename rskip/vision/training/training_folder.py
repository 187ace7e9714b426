"""Manages the folder of a training, and the checkpoint.pt from which it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from rskip.files.state import read_state
from rskip.settings.check import to_plain
from rskip.settings.kinds import Count
from rskip.tasks.loop_folder import LoopCheckpoint, LoopFolder
from rskip.vision.data.own_images import ImageDescription
from rskip.vision.settings import Precision
from rskip.vision.training.curve import CurvePoint


class _Settings(TypedDict):
    precision: Precision
    compile: bool


class _Begun(TypedDict):
    settings: _Settings


class TrainingFolder(LoopFolder):
    """The folder of an image model's training, which also has:

    - model.pt: the last iterate, after the end
    - tensorboard/: events, if they were requested
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.model = path / "model.pt"
        self.tensorboard = path / "tensorboard"

    def begun_with(self) -> Mapping[str, Any] | None:
        """The settings in run.json, with which the training began; None if the file doesn't exist.

        :raises SettingError: the file is not a training's.
        """
        if not self.settings.is_file():
            return None
        advice = f"move {self.path} away to start again"
        return read_state(self.settings, _Begun, advice=advice)["settings"]


@dataclass(frozen=True, kw_only=True)
class TrainingCheckpoint(LoopCheckpoint):
    """A training's state after an iteration.

    iterations: the length of the training.
    rng: states of torch's random numbers, "cpu" and, on a GPU, "cuda".
    meter: sums since the last point of the curve, and "seconds" since then.
    seconds: duration of the training so far.
    pieces: one entry per session: "from" (iteration), "device", "torch" (version), "seconds".
    config, classes, images: the model's config, the names of the classes and the description of your own images.
    """

    iterations: Count
    rng: dict[str, Any]
    meter: dict[str, Any]
    curve: list[CurvePoint]
    seconds: float
    pieces: list[dict[str, Any]]
    config: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    images: ImageDescription | None = None

    def content(self) -> dict[str, Any]:
        return super().content() | ({} if self.images is None else {"images": to_plain(self.images)})


def identity(settings: Mapping[str, Any], *, seed: int, processes: int) -> dict[str, Any]:
    """What a resumed training must have in common with its checkpoint. The images are compared, not their path."""
    plain = {name: value for name, value in settings.items() if name != "data"}
    return {**plain, "seed": seed, "processes": processes}


def check_same_images(path: Path, there: ImageDescription | None, now: ImageDescription) -> None:
    """:raises ValueError: the checkpoint is from a training run on other images."""
    if there is None or (there.sha256, there.size) != (now.sha256, now.size):
        known, ours = ("" if each is None else f"{each.name}, {_counted(each)}" for each in (there, now))
        raise ValueError(
            f"{path} is from a training run on other images ({known}) than these ({ours}): use the same images, or "
            "choose another folder"
        )


def _counted(images: ImageDescription) -> str:
    return ", ".join(f"{count:,} {part}" for part, count in images.counts.items())
