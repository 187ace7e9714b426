"""Training an image model by `rskip vision train`, and evaluating its last iterate.

Each stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was stopped
anywhere goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from rskip.files.whole import atomic_file
from rskip.tasks.image_classification.data import describe_images, ensure_images, image_folder
from rskip.tasks.image_classification.settings import VisionSettings
from rskip.tasks.process import executable
from rskip.tasks.run import Run, precision_here
from rskip.tasks.task import Outcome
from rskip.vision.data import ImageSet
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model
from rskip.vision.training.curve import CurvePoint, read_curve
from rskip.vision.training.settings import TrainingSettings
from rskip.vision.training.training_folder import TrainingFolder

DECIMALS = 4


def training_folder(run: Run[VisionSettings]) -> TrainingFolder:
    """The folder that `rskip vision train` writes."""
    return TrainingFolder(run.folder.path / "training")


def evaluation_file(run: Run[VisionSettings]) -> Path:
    """Figures of the last iterate on the test images, as `Evaluation.to_dict` gives them."""
    return run.folder.path / "evaluation.json"


def commands(run: Run[VisionSettings]) -> list[list[str]]:
    """The commands that a run stands for: train, evaluate."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    evaluating = ["rskip", "vision", "evaluate", str(training_folder(run).path), *_data(run)]
    return [train_command(run, precision=precision), [*evaluating, *_device(min(run.gpus, 1))]]


def train_command(run: Run[VisionSettings], *, precision: str) -> list[str]:
    """`rskip vision train`, under `torchrun` for several GPUs; it goes on by itself from a checkpoint.

    :param precision: what the training computes in, whatever the settings say.
    """
    program = ["rskip"]
    if run.gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(run.gpus), executable("rskip")]
    defaults = TrainingSettings().to_dict()
    settings = run.settings.train.to_dict()
    names = [name for name in settings if settings[name] != defaults[name] and name != "precision"]
    changes = [f"{name}={json.dumps(settings[name])}" for name in names]
    return [
        *program,
        *("vision", "train", *(["--set", *changes] if changes else [])),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *_data(run),
        *("--precision", precision),
        *_device(run.gpus),
    ]


def train(run: Run[VisionSettings]) -> None:
    """Trains to the end with `rskip vision train`, from the last checkpoint where there is one."""
    folder = training_folder(run)
    if not folder.model.exists():
        run.train(
            lambda precision: train_command(run, precision=precision),
            asked=run.settings.train.precision,
            resumed=folder.checkpoint.exists(),
            report=VisionProgress(folder.curve),
        )


def score(run: Run[VisionSettings]) -> Outcome:
    """Evaluates what the training ended with, in float32, where that is not done.

    Metrics: error, accuracy and top5_error (%) and test_loss of the last iterate on the test images, and train_loss,
    the mean over the last epoch's augmented training images.
    """
    dataset, folder, file = run.settings.train.dataset, training_folder(run), evaluation_file(run)
    images = ensure_images(dataset, mirror=run.mirror)
    if not file.exists():
        print(f"evaluating on {len(images['test'].labels):,} test images", flush=True)
        found = evaluate_model(folder.model, dataset=dataset, images=images["test"], gpus=run.gpus)
        with atomic_file(file) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    evaluation = json.loads(file.read_text(encoding="utf-8"))
    if not (curve := read_curve(folder.curve)):
        raise ValueError(f"{run.folder.path} doesn't tell of a training: move it away and run again")
    last = curve[-1]
    model, _ = load_model(folder.model)
    figures = {
        "error": evaluation["error"],
        "accuracy": evaluation["accuracy"],
        "top5_error": evaluation["top5_error"],
        "test_loss": evaluation["loss"],
        "train_loss": last.train_loss,
    }
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        signatures={},
        curve=[msgspec.to_builtins(point) for point in curve],
        training={
            "seconds": last.seconds,
            "epochs": last.epoch,
            "iterations": last.iteration,
            "images_per_second": round(fmean(point.images_per_second for point in curve), 1),
        },
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=describe_images(dataset, images),
    )


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Figures of the model in a file, as `Evaluation.to_dict` gives them, in float32.

    :param gpus: 0 for the CPU; one is used of any other number.
    """
    model, _ = load_model(path, expected={"dataset": dataset})
    return evaluate(model, images, dataset=dataset, device="cuda" if gpus > 0 else "cpu").to_dict()


def worst_classes(run: Run[VisionSettings], count: int) -> str:
    """The classes with the highest error, and what each is most often taken for; empty where the file is gone."""
    if not evaluation_file(run).exists():
        return ""
    classes = json.loads(evaluation_file(run).read_text(encoding="utf-8"))["per_class"]
    worst = sorted(classes, key=lambda each: each["error"] or 0.0, reverse=True)[:count]
    return "\n".join(["", *map(_class_line, worst)])


def _class_line(figures: Mapping[str, Any]) -> str:
    line = f"  {figures['name']:<18}error {figures['error']:5.2f} %"
    if figures["taken_for"]:
        line += f"   most often taken for {figures['taken_for']} ({figures['taken']} of {figures['count']})"
    return line


class VisionProgress:
    """Call it now and then: it prints a line for each epoch that ended since the last call."""

    def __init__(self, curve: Path) -> None:
        self._curve = curve
        self._printed = max((point.iteration for point in self._points()), default=0)

    def __call__(self) -> None:
        for point in self._points():
            if point.iteration > self._printed:
                self._printed = point.iteration
                print(_epoch_line(point), flush=True)

    def _points(self) -> list[CurvePoint]:
        return read_curve(self._curve) if self._curve.exists() else []


def _epoch_line(point: CurvePoint) -> str:
    parts = [f"  epoch {point.epoch:3d}", f"train loss {point.train_loss:.3f}", f"error {point.train_error:5.2f} %"]
    if point.test_loss is not None:
        parts += [f"test loss {point.test_loss:.3f}", f"error {point.test_error:5.2f} %"]
    return "   ".join([*parts, f"{point.seconds / 60:.1f} min"])


def _data(run: Run[VisionSettings]) -> list[str]:
    folder = image_folder(run.mirror)
    return ["--data", str(folder)] if folder is not None else []


def _device(gpus: int) -> list[str]:
    """Named on the CPU alone: of GPUs each process takes its own."""
    return ["--device", "cpu"] if gpus == 0 else []
