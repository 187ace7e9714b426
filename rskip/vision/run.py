"""Runs of image models: `rskip vision train` trains, the last iterate is scored in float32, and may be published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rskip.checkpoint import Checkpoint, write_model
from rskip.checkpoint.config_file import WEIGHTS, read_config
from rskip.connections import ConnectionSpec, Paper, parse_connection
from rskip.files.cache import expanded_path
from rskip.machine.device import set_gpu_arithmetic
from rskip.machine.environment import gpus_to_use
from rskip.records import Record
from rskip.settings.errors import SettingError, shown
from rskip.tasks import ModelDescription, Outcome, looped
from rskip.tasks.looped import DECIMALS, evaluation_file, scored_file, training_folder
from rskip.tasks.run import Run, once, precision_here
from rskip.vision.data import ImageSet, checksums, load_dataset
from rskip.vision.datasets import DATASETS
from rskip.vision.evaluation import evaluate
from rskip.vision.labelled_files import find_labelled_files
from rskip.vision.model_file import TASK, build_model, load_model, model_config
from rskip.vision.own_images import load_own_images
from rskip.vision.settings import TrainingSettings, VisionSettings
from rskip.vision.training import CurvePoint

_BASELINE = ConnectionSpec("xskip", 1)  # the PreAct-ResNet's original connection, of this paper
_PREACT_RESNET = Paper(
    title="Identity Mappings in Deep Residual Networks",
    authors="Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun",
    url="https://arxiv.org/abs/1603.05027",
)


def train(run: Run[VisionSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    settings = run.settings.train
    if settings.data is None:
        ensure_dataset(settings.dataset, mirror=run.mirror)
    else:
        find_labelled_files(Path(settings.data))
    looped.train(run, partial(train_command, run))


def check(runs: Sequence[Run[VisionSettings]]) -> None:
    """Checks whether each batch has an image for each GPU, and a mirror the dataset."""
    for run in runs:
        settings, gpus = run.settings.train, run.gpus
        if gpus > (size := settings.batch_size):
            raise SettingError("train.batch_size", f"is {size}", expected=f"at least one image for each of {gpus} GPUs")
        if run.mirror is None or settings.data is not None:
            continue
        folder, named = image_folder(run.mirror), DATASETS[settings.dataset]
        if not named.find(folder):
            problem = f"does not hold {settings.dataset}" if folder.is_dir() else "is not a folder"
            files = f"{named.first_file} and the other files (also as .xz or .gz)"
            expected = f"the folder with {named.folder} in it, or with {files}"
            raise SettingError("mirror", f"is {shown(run.mirror)}, which {problem}", expected=expected)


def commands(run: Run[VisionSettings]) -> list[list[str]]:
    """The equivalent commands of a run: train and evaluate."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    evaluating = ["rskip", "vision", "evaluate", str(training_folder(run).path), "--precision", "float32", *_data(run)]
    return [train_command(run, precision), [*evaluating, *looped.device_flags(run.gpus)]]


def train_command(run: Run[VisionSettings], precision: str) -> list[str]:
    """The command `rskip vision train`."""
    defaults, settings = TrainingSettings().to_dict(), run.settings.train.to_dict()
    own = run.settings.train.data is not None  # the command would choose other settings for own images
    apart = ("precision", "compile", *(("data", "dataset") if own else ()))
    changed = {
        name: value for name, value in settings.items() if name not in apart and (own or value != defaults.get(name))
    }
    compiled = "--compile" if settings["compile"] else "--no-compile"
    return looped.command(run, ["vision", "train"], changed, *_data(run), "--precision", precision, compiled)


def _data(run: Run[VisionSettings]) -> list[str]:
    if (own := run.settings.train.data) is not None:
        return ["--data", own]
    return [] if run.mirror is None else ["--data", str(image_folder(run.mirror))]


def score(run: Run[VisionSettings]) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already. A diverged training has none, and no metrics.

    Metrics: error, accuracy and top5_error (%) and test_loss of the last iterate on the test images. train_loss is the
    mean over the augmented training images of the last epoch.
    """
    settings = run.settings.train
    images = ensure_images(settings, mirror=run.mirror)

    def evaluated() -> dict[str, Any]:
        print(f"evaluating in float32 for the run record, on {len(images.test):,} {images.split} images", flush=True)
        return evaluate_model(scored_file(run), dataset=settings.dataset, images=images.test, gpus=run.gpus)

    with torch.device("meta"):
        untrained = build_model(model_config(settings, len(images.test.classes), size=images.size))
    return looped.score(
        run,
        evaluated,
        metrics={"error": "error", "accuracy": "accuracy", "top5_error": "top5_error", "test_loss": "loss"},
        points=CurvePoint,
        untrained=untrained,
        data=images.described,
    )


def evaluate_model(path: Path, *, dataset: str, images: ImageSet, gpus: int) -> dict[str, Any]:
    """Evaluates the model in a file in float32, on one GPU unless `gpus` is 0, and returns `Evaluation.to_dict()`."""
    model, _ = load_model(path, expected={"dataset": dataset})
    device = torch.device("cuda" if gpus > 0 else "cpu")
    set_gpu_arithmetic(device, training=False, same_shapes=True)
    return evaluate(model, images, dataset=dataset, device=device).to_dict()


def sample_outputs(run: Run[VisionSettings], count: int) -> str:
    """The classes with the highest error and their most frequent confusions; empty without an evaluation."""
    if not evaluation_file(run).exists():
        return ""
    tested = [each for each in once(evaluation_file(run))["per_class"] if each["error"] is not None]
    worst = sorted(tested, key=lambda each: each["error"], reverse=True)[:count]
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
    own = load_own_images(settings, scored=True)
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


def check_publishable(record: Record) -> None:
    """:raises ValueError: the run was trained on your own images."""
    if (own := record.config["train"].get("data")) is not None:
        raise ValueError(
            f"{record.run} was trained on your own images, {own}: a published model names a dataset and its terms; "
            "share the folder of the training run, which `rskip.load` reads, instead"
        )


def export_weights(run: Run[VisionSettings], record: Record, folder: Path) -> dict[str, Any]:
    """Writes model.safetensors (float32) and config.json, which `rskip.vision.model_file.load_model` reads.

    :returns: the error of the exported weights.
    """
    dataset = run.settings.train.dataset
    images = ensure_images(run.settings.train, mirror=run.mirror).test
    model, description = load_model(scored_file(run))
    config = {"task": TASK, "model": dict(description.config), "dataset": dataset, "classes": list(images.classes)}
    write_model(folder, Checkpoint(model=model.state_dict(), config=config))
    gpus = gpus_to_use(None) if record.machine.get("gpu") else 0  # as in the run, since other devices round differently
    found = evaluate_model(folder / WEIGHTS, dataset=dataset, images=images, gpus=gpus)
    return {"error": round(found["error"], DECIMALS)}


def describe(folder: Path, record: Record) -> ModelDescription:
    """Describes the model in a published folder, from its config.json."""
    config = read_config(folder / WEIGHTS)
    dataset, model = config["dataset"], config["model"]
    connection = model["connection"]
    spec = parse_connection(connection)
    return ModelDescription(
        architecture=_architecture(model),
        connection=connection,
        dataset=dataset,
        measured_on=dataset,
        split="test",
        data_terms=DATASETS[dataset].terms,
        paper=_PREACT_RESNET if spec == _BASELINE else spec.paper,
    )


def _architecture(model: Mapping[str, Any]) -> str:
    """The architecture's name, such as preact_resnet20, with the settings that differ from the defaults."""
    if "name" in model:
        return str(model["name"])
    if "patch" in model:
        return f"vit_{model['depth']}x{model['features']}_patch{model['patch']}"
    depth, shortcut = model["depth"], model["shortcut"]
    block, shortcut_input = model.get("block", "basic"), model.get("shortcut_input", "raw")
    parts = [
        f"preact_resnet{depth}",
        *([block] if block != ("bottleneck" if depth == 164 else "basic") else []),
        *([shortcut] if shortcut != "zero_pad" else []),
        *([shortcut_input] if shortcut_input != "raw" else []),
    ]
    return "_".join(parts)
