"""Scores a vision run: its last iterate on the test images, in float32."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

import msgspec
import torch
from torch import nn

from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.machine.device import set_gpu_arithmetic
from rskip.tasks.run import Run
from rskip.tasks.task import Outcome
from rskip.vision.data import ImageSet
from rskip.vision.data.run_images import RunImages, ensure_images
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model
from rskip.vision.models import build_model, model_config
from rskip.vision.recipe import VisionSettings
from rskip.vision.run import scored_file, training_folder
from rskip.vision.training.curve import CurvePoint, read_curve

DECIMALS = 4


class _ClassMetrics(TypedDict):
    name: str
    count: int
    error: float | None
    taken_for: str | None
    taken: int


class _Evaluation(TypedDict):
    """The content of evaluation.json. Only the keys that rskip reads are declared."""

    error: float
    accuracy: float
    top5_error: float
    loss: float
    per_class: list[_ClassMetrics]


def score(run: Run[VisionSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already.

    Metrics: error, accuracy and top5_error (%) and test_loss of the last iterate on the test images. train_loss is the
    mean over the augmented training images of the last epoch.
    """
    settings, folder, file = run.settings.train, training_folder(run), evaluation_file(run)
    images = ensure_images(settings, mirror=run.mirror)
    if not file.exists():
        print(f"evaluating in float32 for the run record, on {len(images.test):,} {images.split} images", flush=True)
        found = evaluate_model(folder.model, dataset=settings.dataset, images=images.test, gpus=run.gpus)
        with atomic_file(file) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    evaluation = _read_evaluation(file)
    model, description = load_model(folder.model)
    curve = read_curve(folder.curve, finished=True)
    if not curve or curve[-1].iteration != description.iteration:
        raise ValueError(f"{folder.curve} doesn't match the trained model: move {run.folder.path} away and run again")
    figures = {
        "error": evaluation["error"],
        "accuracy": evaluation["accuracy"],
        "top5_error": evaluation["top5_error"],
        "test_loss": evaluation["loss"],
        "train_loss": curve[-1].train_loss,
    }
    return _outcome(run, figures, curve, model, images)


def diverged(run: Run[VisionSettings]) -> Outcome:
    """The outcome of a diverged training: its curve until then."""
    train = run.settings.train
    images = ensure_images(train, mirror=run.mirror)
    with torch.device("meta"):
        model = build_model(model_config(train, len(images.classes), size=images.size))
    curve = training_folder(run).curve
    return _outcome(run, {}, read_curve(curve) if curve.exists() else [], model, images)


def _outcome(
    run: Run[VisionSettings],
    figures: Mapping[str, float],
    curve: Sequence[CurvePoint],
    model: nn.Module,
    images: RunImages,
) -> Outcome:
    last = curve[-1] if curve else None
    training: dict[str, Any] = {"seconds": 0.0, "epochs": 0, "iterations": None}
    if last is not None:
        training = {
            "seconds": last.seconds,
            "epochs": last.epoch,
            "iterations": last.iteration,
            "images_per_second": round(fmean(point.images_per_second for point in curve), 1),
        }
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        signatures={},
        curve=[msgspec.to_builtins(point) for point in curve],
        training=training,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=images.described,
    )


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Evaluates the model in a file in float32, and returns `Evaluation.to_dict()`.

    :param gpus: 0 for the CPU. With any other number, one GPU is used.
    """
    model, _ = load_model(path, expected={"dataset": dataset})
    device = torch.device("cuda" if gpus > 0 else "cpu")
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    return evaluate(model, images, dataset=dataset, device=device).to_dict()


def evaluation_file(run: Run[VisionSettings]) -> Path:
    """The file with the evaluation of the last iterate on the test images (`Evaluation.to_dict`)."""
    return run.folder.path / "evaluation.json"


def sample_outputs(run: Run[VisionSettings], count: int) -> str:
    """The classes with the highest error and their most frequent confusions; empty if the file is missing."""
    if not evaluation_file(run).exists():
        return ""
    classes = _read_evaluation(evaluation_file(run))["per_class"]
    worst = sorted(classes, key=lambda each: each["error"] or 0.0, reverse=True)[:count]
    return "\n".join(["", *map(_class_line, worst)])


def _read_evaluation(file: Path) -> _Evaluation:
    return read_state(file, _Evaluation, advice="delete it to evaluate again")


def _class_line(figures: _ClassMetrics) -> str:
    line = f"  {figures['name']:<18}error {figures['error']:5.2f} %"
    if figures["taken_for"]:
        line += f"   most often confused with {figures['taken_for']} ({figures['taken']} of {figures['count']})"
    return line


def artifacts(run: Run[VisionSettings]) -> dict[str, str]:
    """See `Task.artifacts`."""
    return {
        str(run.folder.train_log): "output of the training",
        str(evaluation_file(run)): "error per class, and the confusion matrix",
        str(scored_file(run)): "the model, for `rskip vision evaluate`",
    }
