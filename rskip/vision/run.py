"""Trains a vision run with `rskip vision train` in a separate process, and scores its last iterate in float32."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch
from torch import nn

from rskip.files.cache import expanded_path
from rskip.machine.device import set_gpu_arithmetic
from rskip.settings.errors import SettingError, shown
from rskip.tasks.process import launched
from rskip.tasks.run import EpochLines, Run, epoch_line, once, precision_here
from rskip.tasks.task import Outcome
from rskip.vision.data import ImageSet, checksums, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import build_model, load_model, model_config
from rskip.vision.own_images import find_labelled_files, load_own_images
from rskip.vision.settings import TrainingSettings, VisionSettings
from rskip.vision.training import CurvePoint, TrainingFolder, read_curve

DECIMALS = 4


def train(run: Run[VisionSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    settings = run.settings.train
    if settings.data is None:
        ensure_dataset(settings.dataset, mirror=run.mirror)
    else:
        find_labelled_files(Path(settings.data))
    print(f"{run.name}, seed {run.seed}", flush=True)
    folder = training_folder(run)
    if not scored_file(run).exists():
        run.train(
            lambda precision: train_command(run, precision=precision),
            asked=run.settings.train.precision,
            resumed=folder.checkpoint.exists(),
            report=EpochLines(folder.curve, epoch_lines),
        )


def check_mirror(settings: VisionSettings, *, mirror: str) -> None:
    """Checks whether a mirror holds the dataset."""
    if settings.train.data is not None:
        return
    folder, named = image_folder(mirror), DATASETS[settings.train.dataset]
    if named.find(folder):
        return
    problem = f"does not hold {settings.train.dataset}" if folder.is_dir() else "is not a folder"
    files = f"{named.first_file} and the other files (also as .xz or .gz)"
    expected = f"the folder with {named.folder} in it, or with {files}"
    raise SettingError("mirror", f"is {shown(mirror)}, which {problem}", expected=expected)


def training_folder(run: Run[VisionSettings]) -> TrainingFolder:
    return TrainingFolder(run.folder.path / "training")


def scored_file(run: Run[VisionSettings]) -> Path:
    """The last iterate, which is scored."""
    return training_folder(run).path / "model.pt"


def commands(run: Run[VisionSettings]) -> list[list[str]]:
    """The equivalent commands of a run: train and evaluate."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    evaluating = ["rskip", "vision", "evaluate", str(training_folder(run).path), "--precision", "float32", *_data(run)]
    return [train_command(run, precision=precision), [*evaluating, *_device(min(run.gpus, 1))]]


def train_command(run: Run[VisionSettings], *, precision: str) -> list[str]:
    """The command `rskip vision train`, under `torchrun` for several GPUs. It resumes from a checkpoint."""
    defaults, settings = TrainingSettings().to_dict(), run.settings.train.to_dict()
    own = run.settings.train.data is not None  # the command would choose other settings for own images
    apart = ("precision", "compile", *(("data", "dataset") if own else ()))
    changes = [
        f"{name}={json.dumps(value)}"
        for name, value in settings.items()
        if name not in apart and (own or value != defaults.get(name))
    ]
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
    lines = []
    for point in read_curve(curve):
        metrics = [f"train loss {point.train_loss:.3f}", f"error {point.train_error:5.2f} %"]
        if point.test_loss is not None:
            metrics += [f"test loss {point.test_loss:.3f}", f"error {point.test_error:5.2f} %"]
        lines.append(epoch_line(point.epoch, metrics, point.seconds))
    return lines


def _data(run: Run[VisionSettings]) -> list[str]:
    if (own := run.settings.train.data) is not None:
        return ["--data", own]
    return [] if run.mirror is None else ["--data", str(image_folder(run.mirror))]


def _device(gpus: int) -> list[str]:
    """The flag for the CPU. On GPUs it is not needed, since each process chooses its own GPU."""
    return ["--device", "cpu"] if gpus == 0 else []


def score(run: Run[VisionSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already. A diverged training has none, and no metrics.

    Metrics: error, accuracy and top5_error (%) and test_loss of the last iterate on the test images. train_loss is the
    mean over the augmented training images of the last epoch.
    """
    if not scored_file(run).exists():
        return _diverged(run)
    settings = run.settings.train
    images = ensure_images(settings, mirror=run.mirror)

    def evaluated() -> dict[str, Any]:
        print(f"evaluating in float32 for the run record, on {len(images.test):,} {images.split} images", flush=True)
        return evaluate_model(scored_file(run), dataset=settings.dataset, images=images.test, gpus=run.gpus)

    evaluation = once(evaluation_file(run), evaluated)
    model, _ = load_model(scored_file(run))
    curve = read_curve(training_folder(run).curve, finished=True)
    figures = {
        "error": evaluation["error"],
        "accuracy": evaluation["accuracy"],
        "top5_error": evaluation["top5_error"],
        "test_loss": evaluation["loss"],
        "train_loss": curve[-1].train_loss,
    }
    return _outcome(run, figures, curve, model, images)


def _diverged(run: Run[VisionSettings]) -> Outcome:
    """The outcome of a diverged training: its curve until then."""
    train = run.settings.train
    images = ensure_images(train, mirror=run.mirror)
    with torch.device("meta"):
        model = build_model(model_config(train, len(images.test.classes), size=images.size))
    curve = training_folder(run).curve
    return _outcome(run, {}, read_curve(curve) if curve.exists() else [], model, images)


def _outcome(
    run: Run[VisionSettings],
    figures: Mapping[str, float],
    curve: Sequence[CurvePoint],
    model: nn.Module,
    images: RunImages,
) -> Outcome:
    training: dict[str, Any] = {"seconds": 0.0, "epochs": 0, "iterations": None}
    if curve:
        rate = round(fmean(point.images_per_second for point in curve), 1)
        training = {"seconds": curve[-1].seconds, "epochs": curve[-1].epoch, "iterations": curve[-1].iteration}
        training["images_per_second"] = rate
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        signatures={},
        curve=[msgspec.to_builtins(point) for point in curve],
        training=training,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        data=images.described,
    )


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Evaluates the model in a file in float32, on one GPU unless `gpus` is 0, and returns `Evaluation.to_dict()`."""
    model, _ = load_model(path, expected={"dataset": dataset})
    device = torch.device("cuda" if gpus > 0 else "cpu")
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    return evaluate(model, images, dataset=dataset, device=device).to_dict()


def evaluation_file(run: Run[VisionSettings]) -> Path:
    """The file with the evaluation of the last iterate on the test images (`Evaluation.to_dict`)."""
    return run.folder.path / "evaluation.json"


def sample_outputs(run: Run[VisionSettings], count: int) -> str:
    """The classes with the highest error and their most frequent confusions; empty without an evaluation."""
    if not evaluation_file(run).exists():
        return ""
    classes = once(evaluation_file(run))["per_class"]
    worst = sorted(classes, key=lambda each: each["error"] or 0.0, reverse=True)[:count]
    return "\n".join(["", *map(_class_line, worst)])


def _class_line(figures: Mapping[str, Any]) -> str:
    line = f"  {figures['name']:<18}error {figures['error']:5.2f} %"
    if figures["taken_for"]:
        line += f"   most often confused with {figures['taken_for']} ({figures['taken']} of {figures['count']})"
    return line


def artifacts(run: Run[VisionSettings]) -> dict[str, str]:
    """Files of a run for the user."""
    return {
        str(run.folder.train_log): "output of the training",
        str(evaluation_file(run)): "error per class, and the confusion matrix",
        str(scored_file(run)): "the model, for `rskip vision evaluate`",
    }


@dataclass(frozen=True, kw_only=True)
class RunImages:
    """The images that a run is scored on, their split ("test" or "valid"), and the record's description of all images.

    `test` are the test images; without test images of your own, the validation images.
    """

    test: ImageSet
    size: int | None = None
    split: str = "test"
    described: dict[str, Any]


def ensure_images(settings: TrainingSettings, *, mirror: str | None) -> RunImages:
    """The images of a run's settings, a dataset's or your own."""
    if settings.data is None:
        images = ensure_dataset(settings.dataset, mirror=mirror)
        described = {
            "dataset": settings.dataset,
            "images": {split: len(each) for split, each in images.items()},
            "classes": len(images["train"].classes),
            "md5": dict(sorted(checksums(settings.dataset).items())),
        }
        return RunImages(test=images["test"], described=described)
    preact = settings.model == "preact_resnet"
    own = load_own_images(find_labelled_files(Path(settings.data)), size=settings.size, preact=preact, scored=True)
    about, classes = own.description, len(own.train.classes)
    described = {"dataset": about.name, "images": dict(about.counts), "classes": classes, "scored_on": own.split}
    described["sha256"] = dict(about.sha256)
    return RunImages(test=own.held_out, size=about.size, split=own.split, described=described)


def ensure_dataset(dataset: str, *, mirror: str | None) -> dict[str, ImageSet]:
    """The images of both splits. Without a mirror, a missing dataset is downloaded into the cache."""
    load = partial(load_dataset, dataset, mirror and image_folder(mirror), download=mirror is None)
    return {"train": load(train=True), "test": load(train=False)}


def image_folder(mirror: str) -> Path:
    """The folder of a mirror, as for `load_dataset`.

    :raises ValueError: the mirror is an address, or is in the home of an unknown user.
    """
    if "://" in mirror:
        raise SettingError.of_value("mirror", mirror, "a folder, such as one with cifar-10-batches-py in it")
    return expanded_path(mirror, "mirror")
