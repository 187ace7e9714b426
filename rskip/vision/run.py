"""Trains a vision run with `rskip vision train` in a separate process, and lists the run's commands."""

from __future__ import annotations

import json
from pathlib import Path

from rskip.tasks.process import launched
from rskip.tasks.run import EpochLines, Run, epoch_line, precision_here
from rskip.vision.data import run_images
from rskip.vision.data.labelled_files import find_labelled_files
from rskip.vision.data.run_images import ensure_dataset, image_folder
from rskip.vision.recipe import VisionSettings
from rskip.vision.settings import TrainingSettings
from rskip.vision.training.curve import CurvePoint, read_curve
from rskip.vision.training.training_folder import TrainingFolder


def train(run: Run[VisionSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    settings = run.settings.train
    if settings.data is None:
        ensure_dataset(settings.dataset, mirror=run.mirror)
    else:
        find_labelled_files(Path(settings.data))
    print(f"{run.name}, seed {run.seed}", flush=True)
    folder = training_folder(run)
    if not folder.model.exists():
        run.train(
            lambda precision: train_command(run, precision=precision),
            asked=run.settings.train.precision,
            resumed=folder.checkpoint.exists(),
            report=EpochLines(folder.curve, epoch_lines),
        )


def check_mirror(settings: VisionSettings, *, mirror: str) -> None:
    """See `Task.check_mirror`."""
    if settings.train.data is None:
        run_images.check_mirror(settings.train.dataset, mirror)


def training_folder(run: Run[VisionSettings]) -> TrainingFolder:
    """The folder that `rskip vision train` writes."""
    return TrainingFolder(run.folder.path / "training")


def scored_file(run: Run[VisionSettings]) -> Path:
    """The last iterate, which is scored."""
    return training_folder(run).model


def commands(run: Run[VisionSettings]) -> list[list[str]]:
    """The equivalent commands of a run: train and evaluate."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    evaluating = ["rskip", "vision", "evaluate", str(training_folder(run).path), "--precision", "float32", *_data(run)]
    return [train_command(run, precision=precision), [*evaluating, *_device(min(run.gpus, 1))]]


def train_command(run: Run[VisionSettings], *, precision: str) -> list[str]:
    """The command `rskip vision train`, under `torchrun` for several GPUs. It resumes from a checkpoint.

    :param precision: precision of the training, which overrides the settings.
    """
    defaults = TrainingSettings().to_dict()
    settings = run.settings.train.to_dict()
    own = run.settings.train.data is not None  # the command would choose other settings for own images
    apart = ("precision", "compile", *(("data", "dataset") if own else ()))
    names = [name for name in settings if (own or settings[name] != defaults.get(name)) and name not in apart]
    changes = [f"{name}={json.dumps(settings[name])}" for name in names]
    return [
        *launched("rskip", gpus=run.gpus),
        *("vision", "train", *(["--set", *changes] if changes else [])),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *_data(run),
        *("--precision", precision, "--compile" if settings["compile"] else "--no-compile"),
        *run.probe_flags,
        *_device(run.gpus),
    ]


def epoch_lines(curve: Path) -> list[str]:
    """One line per epoch of a curve."""
    return [_epoch_line(point) for point in read_curve(curve)]


def _epoch_line(point: CurvePoint) -> str:
    figures = [f"train loss {point.train_loss:.3f}", f"error {point.train_error:5.2f} %"]
    if point.test_loss is not None:
        figures += [f"test loss {point.test_loss:.3f}", f"error {point.test_error:5.2f} %"]
    return epoch_line(point.epoch, figures, point.seconds)


def _data(run: Run[VisionSettings]) -> list[str]:
    if (own := run.settings.train.data) is not None:
        return ["--data", own]
    folder = image_folder(run.settings.train.dataset, run.mirror)
    return ["--data", str(folder)] if folder is not None else []


def _device(gpus: int) -> list[str]:
    """The flag for the CPU. On GPUs it is not needed, since each process chooses its own GPU."""
    return ["--device", "cpu"] if gpus == 0 else []
