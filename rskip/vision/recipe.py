"""A run of image classification: its settings and images, `rskip vision train`, the evaluation of its last iterate.

Each stage's output is whole or absent, and a stage whose output is there is not repeated, so that a stopped run is
resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypedDict

import msgspec
import torch
from torch import nn

from rskip.files.cache import expanded_path
from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.machine.device import set_gpu_arithmetic
from rskip.settings.errors import SettingError
from rskip.tasks.process import executable
from rskip.tasks.run import EpochLines, Run, epoch_line, precision_here
from rskip.tasks.task import Outcome
from rskip.vision.cifar_resnet import preact_resnet
from rskip.vision.data import ImageSet, load_cifar
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model
from rskip.vision.settings import TrainingSettings
from rskip.vision.training.curve import CurvePoint, read_curve
from rskip.vision.training.training_folder import TrainingFolder

REQUIRED = ("dataset", "depth", "connection")  # in a recipe, though TrainingSettings have defaults
DECIMALS = 4


class VisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one vision run: `train`, as `rskip vision train` takes it; the last iterate is evaluated."""

    train: TrainingSettings


class _ClassFigures(TypedDict):
    name: str
    count: int
    error: float | None
    taken_for: str | None
    taken: int


class _Evaluation(TypedDict):
    """The content of evaluation.json. Holds the keys that rskip reads."""

    error: float
    accuracy: float
    top5_error: float
    loss: float
    per_class: list[_ClassFigures]


def check_required(content: Mapping[str, Any]) -> None:
    """:raises SettingError: a recipe leaves out what it has to say."""
    train = content.get("train")
    if isinstance(train, Mapping) and (missing := [name for name in REQUIRED if name not in train]):
        raise SettingError(f"train.{missing[0]}", "is missing")


def ensure_images(dataset: str, *, mirror: str | None) -> dict[str, ImageSet]:
    """The images of both splits, "train" and "test".

    :param mirror: the folder that holds the dataset's own folder, such as cifar-10-batches-py; None: where downloads
        are kept, and it is downloaded there where it is missing.
    :raises FileNotFoundError: none of the dataset's in `mirror`.
    :raises SettingError: the mirror is no folder.
    :raises ValueError: a file of it is damaged.
    """
    folder = image_folder(mirror)
    if folder is not None and not folder.is_dir():
        raise SettingError.of_value("mirror", mirror, f"a folder that holds {dataset}'s, or none")
    return {
        split: load_cifar(dataset, folder, train=split == "train", download=mirror is None)
        for split in ("train", "test")
    }


def image_folder(mirror: str | None) -> Path | None:
    """The mirror as a path; None where downloads are kept.

    :raises ValueError: an address (torchvision has its own), or the home of an unknown user.
    """
    if mirror is not None and "://" in mirror:
        raise SettingError.of_value("mirror", mirror, "a folder, such as one with cifar-10-batches-py in it")
    return expanded_path(mirror, "mirror") if mirror is not None else None


def describe_images(dataset: str, images: Mapping[str, ImageSet]) -> dict[str, Any]:
    """Counts of images, and the MD5 of every file of the dataset: `load_cifar` reads no other."""
    from torchvision import datasets

    published = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[dataset]
    files = [*published.train_list, *published.test_list, [published.meta["filename"], published.meta["md5"]]]
    return {
        "dataset": dataset,
        "images": {split: len(each.labels) for split, each in images.items()},
        "classes": len(images["train"].classes),
        "md5": dict(sorted(files)),
    }


def training_folder(run: Run[VisionSettings]) -> TrainingFolder:
    """The folder that `rskip vision train` writes."""
    return TrainingFolder(run.folder.path / "training")


def evaluation_file(run: Run[VisionSettings]) -> Path:
    """Figures of the last iterate on the test images, as `Evaluation.to_dict` gives them."""
    return run.folder.path / "evaluation.json"


def commands(run: Run[VisionSettings]) -> list[list[str]]:
    """The commands that a run stands for: train, evaluate."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    evaluating = ["rskip", "vision", "evaluate", str(training_folder(run).path), "--precision", "float32", *_data(run)]
    return [train_command(run, precision=precision), [*evaluating, *_device(min(run.gpus, 1))]]


def train_command(run: Run[VisionSettings], *, precision: str) -> list[str]:
    """`rskip vision train`, under `torchrun` for several GPUs; it resumes by itself from a checkpoint.

    :param precision: what the training computes in, whatever the settings say.
    """
    program = ["rskip"]
    if run.gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(run.gpus), executable("rskip")]
    defaults = TrainingSettings().to_dict()
    settings = run.settings.train.to_dict()
    names = [name for name in settings if settings[name] != defaults.get(name) and name not in ("precision", "compile")]
    changes = [f"{name}={json.dumps(settings[name])}" for name in names]
    return [
        *program,
        *("vision", "train", *(["--set", *changes] if changes else [])),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *_data(run),
        *("--precision", precision, "--compile" if settings["compile"] else "--no-compile"),
        *([] if run.probe is None else ["--probe-every", str(run.probe.every), "--probe-file", str(run.folder.probe)]),
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
            report=EpochLines(folder.curve, epoch_lines),
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
    """What a training that diverged came to: its curve up to there."""
    train = run.settings.train
    images = ensure_images(train.dataset, mirror=run.mirror)
    with torch.device("meta"):
        model = preact_resnet(
            train.depth, train.connection, len(images["train"].classes), shortcut=train.shortcut, block=train.block
        )
    curve = training_folder(run).curve
    return _outcome(run, {}, read_curve(curve) if curve.exists() else [], model, images)


def _outcome(
    run: Run[VisionSettings],
    figures: Mapping[str, float],
    curve: Sequence[CurvePoint],
    model: nn.Module,
    images: Mapping[str, ImageSet],
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
        data=describe_images(run.settings.train.dataset, images),
    )


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Figures of the model in a file, as `Evaluation.to_dict` gives them, in float32.

    :param gpus: 0 for the CPU; one is used of any other number.
    """
    model, _ = load_model(path, expected={"dataset": dataset})
    device = torch.device("cuda" if gpus > 0 else "cpu")
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    return evaluate(model, images, dataset=dataset, device=device).to_dict()


def worst_classes(run: Run[VisionSettings], count: int) -> str:
    """The classes with the highest error, and what each is most often confused with; empty where the file is gone."""
    if not evaluation_file(run).exists():
        return ""
    classes = _read_evaluation(evaluation_file(run))["per_class"]
    worst = sorted(classes, key=lambda each: each["error"] or 0.0, reverse=True)[:count]
    return "\n".join(["", *map(_class_line, worst)])


def _read_evaluation(file: Path) -> _Evaluation:
    return read_state(file, _Evaluation, advice="delete it to evaluate again")


def _class_line(figures: _ClassFigures) -> str:
    line = f"  {figures['name']:<18}error {figures['error']:5.2f} %"
    if figures["taken_for"]:
        line += f"   most often confused with {figures['taken_for']} ({figures['taken']} of {figures['count']})"
    return line


def epoch_lines(curve: Path) -> list[str]:
    """A line for each epoch of a curve."""
    return [_epoch_line(point) for point in read_curve(curve)]


def _epoch_line(point: CurvePoint) -> str:
    figures = [f"train loss {point.train_loss:.3f}", f"error {point.train_error:5.2f} %"]
    if point.test_loss is not None:
        figures += [f"test loss {point.test_loss:.3f}", f"error {point.test_error:5.2f} %"]
    return epoch_line(point.epoch, figures, point.seconds)


def _data(run: Run[VisionSettings]) -> list[str]:
    folder = image_folder(run.mirror)
    return ["--data", str(folder)] if folder is not None else []


def _device(gpus: int) -> list[str]:
    """Named on the CPU alone: of GPUs each process takes its own."""
    return ["--device", "cpu"] if gpus == 0 else []
