"""Reads a trained model from a training's folder, one of its files, or a published folder. It runs no pickle.

model.safetensors   the model of a finished training, or published weights, with config.json next to it
checkpoint.pt       the state of an unfinished training
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from torch import Tensor, nn

from rskip.checkpoint.checkpoint import of_other_task
from rskip.checkpoint.config_file import CONFIG, OF_EVERY_TASK, WEIGHTS
from rskip.checkpoint.fairseq_file import task_of_training_file
from rskip.checkpoint.files import read_safetensors
from rskip.connections import parse_connection
from rskip.files.state import as_state
from rskip.files.torch_file import read_torch_file, weights_difference
from rskip.settings.check import convert, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Whole
from rskip.vision.cifar_resnet import SIZE, PreActConfig, preact_resnet
from rskip.vision.imagenet_resnet import torchvision_resnet
from rskip.vision.own_images import ImageDescription
from rskip.vision.settings import OWN, DatasetName, ModelName, TrainingSettings
from rskip.vision.vit import VisionTransformerConfig, vision_transformer

FILES = (WEIGHTS, "checkpoint.pt")  # the first one in a folder is read
TASK = "vision"


class TorchvisionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `torchvision_resnet`."""

    name: ModelName
    connection: str
    num_classes: int


class _Training(TypedDict):
    """The content of checkpoint.pt, whose `config` is that of the published model."""

    config: dict[str, Any]
    iteration: Whole
    iterations: Count
    model: dict[str, Tensor]


class PublishedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The content of config.json next to published weights."""

    model: dict[str, Any]
    dataset: DatasetName
    classes: tuple[str, ...]  # names of the classes, in the order of the logits
    images: ImageDescription | None = None  # only for your own images


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """The description of a model in its file.

    path: the file of the weights.
    config: the argument of `build_model`.
    dataset: the dataset of its training, such as `cifar10`, or `images` for your own.
    images: description of your own images; None for a dataset.
    classes: names of the classes, in the order of the logits.
    iteration, iterations: of an unfinished training: the iteration of the file, and the length of the training.
    """

    path: Path
    config: Mapping[str, Any]
    dataset: str
    classes: tuple[str, ...]
    iteration: int | None = None
    iterations: int | None = None
    images: ImageDescription | None = None

    @property
    def name(self) -> str:
        """The model's name, such as `PreAct-ResNet-20, 2rskip+ln`."""
        return model_name(self.config)

    @property
    def finished(self) -> bool:
        """Whether the training had ended, which is true for a published model."""
        return self.iteration == self.iterations

    @property
    def status(self) -> str:
        """A suffix of the name with the progress of an unfinished training; empty for a finished one."""
        if self.finished:
            return ""
        return f", an unfinished training run: iteration {self.iteration:,} of {self.iterations:,}"

    def to_dict(self) -> dict[str, Any]:
        """Everything except the classes, as plain JSON values."""
        return {
            "path": str(self.path),
            "config": dict(self.config),
            "dataset": self.dataset,
            "iteration": self.iteration,
            "iterations": self.iterations,
            "finished": self.finished,
            **({} if self.images is None else {"images": to_plain(self.images)}),
        }


def load_model(path: Path, *, expected: Mapping[str, Any] | None = None) -> tuple[nn.Module, ModelDescription]:
    """Loads a model on the CPU in eval mode, with its description.

    :param path: a file of FILES, or a folder with one. model.safetensors takes precedence over checkpoint.pt.
    :param expected: values that the file must have, such as {"depth": 110, "connection": "2rskip+ln"}: keys of the
        model's config, or `dataset`.
    :raises FileNotFoundError: the path holds no model.
    :raises ValueError: the file is damaged or not a model, differs from `expected`, or its weights don't fit its
        config.
    """
    file = model_file(path)
    description, state = _read_published(file) if file.suffix == ".safetensors" else _read_checkpoint(file)
    _check_expected(description, expected or {})
    try:
        model = build_model(description.config)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if difference := weights_difference(model.state_dict(), state):
        raise ValueError(f"{file} says {description.name}, but has the weights of another model: {difference}")
    model.load_state_dict(state)
    return model.eval(), description


def model_file(path: Path) -> Path:
    """The file itself, or the first of FILES in a folder.

    :raises FileNotFoundError: there is none.
    """
    if path.is_file():
        return path
    if not path.exists():
        raise FileNotFoundError(f"no model {path}: expected the folder of a training run, or its {' or '.join(FILES)}")
    for name in FILES:
        if (path / name).is_file() and (name != WEIGHTS or (path / CONFIG).is_file()):  # which is written last
            return path / name
    below = sorted({found.parent for name in FILES for found in path.glob(f"*/{name}")})
    hint = f"; there is one in {below[0]}" if below else ""
    raise FileNotFoundError(f"{path} holds no model: expected {', '.join(FILES)} in it{hint}")


def _read_checkpoint(path: Path) -> tuple[ModelDescription, dict[str, Tensor]]:
    """Reads checkpoint.pt of a training."""
    content = read_torch_file(path, kind="file of `rskip vision train`")
    source, advice = str(path), "give a file from `rskip vision train`"
    if (task := task_of_training_file(content)) not in (None, TASK):
        raise of_other_task({"task": task}, TASK).within(source=source)
    state = as_state(content, _Training, source=source, advice=advice)
    return _published(path, state["config"], source, state["iteration"], state["iterations"]), state["model"]


def _read_published(path: Path) -> tuple[ModelDescription, dict[str, Tensor]]:
    """Reads published weights and their config.json."""
    checkpoint, source = read_safetensors(path), str(path.with_name(CONFIG))
    if checkpoint.config["task"] != TASK:
        raise of_other_task(checkpoint.config, TASK).within(source=source)
    return _published(path, checkpoint.config, source), checkpoint.model


def _published(
    path: Path, content: Mapping[str, Any], source: str, iteration: int | None = None, iterations: int | None = None
) -> ModelDescription:
    """The description in the content of a config.json."""
    own = {key: value for key, value in content.items() if key not in OF_EVERY_TASK}
    published = convert(own, PublishedConfig, source=source)
    if published.dataset == OWN and published.images is None:
        raise SettingError("images", "is missing", expected="the description of the images", source=source)
    kind, _ = _kind_of(published.model)
    return ModelDescription(
        path=path,
        config=to_plain(convert(published.model, kind, name="model", source=source)),
        dataset=published.dataset,
        classes=published.classes,
        iteration=iteration,
        iterations=iterations,
        images=published.images,
    )


def _check_expected(description: ModelDescription, expected: Mapping[str, Any]) -> None:
    found = {**description.config, "dataset": description.dataset}
    asked = dict(expected)
    if "connection" in asked:
        asked["connection"] = str(parse_connection(asked["connection"]))
    if differing := [key for key, value in asked.items() if found.get(key) != value]:
        has, wanted = (", ".join(f"{key} {each.get(key)}" for key in differing) for each in (found, asked))
        raise ValueError(f"{description.path} holds {has}, not the {wanted} asked for")


def model_config(settings: TrainingSettings, num_classes: int, *, size: int | None = None) -> dict[str, Any]:
    """The config of the model that these settings train.

    :param size: pixels per side of its images; None: those of a dataset.
    """
    if settings.of_torchvision:
        return {"name": settings.model, "connection": settings.connection, "num_classes": num_classes}
    kind: Any
    if settings.model == "vit":
        kind, fields = VisionTransformerConfig, ("depth", "connection", "features", "heads", "patch")
    else:
        kind, fields = PreActConfig, ("depth", "connection", "shortcut", "block", "shortcut_input")
    values: Any = {name: getattr(settings, name) for name in fields}
    plain: dict[str, Any] = to_plain(kind(num_classes=num_classes, size=size or SIZE, **values))
    return plain


def build_model(config: Mapping[str, Any]) -> nn.Module:
    """Builds the model of a config, with initial weights.

    :raises ValueError: a value is not valid, or the model's library is missing.
    """
    return _kind_of(config)[1](**config)


def _kind_of(config: Mapping[str, Any]) -> tuple[type, Callable[..., nn.Module]]:
    """The type of a model's config, and the function that builds the model."""
    if "name" in config:
        return TorchvisionConfig, torchvision_resnet
    return (VisionTransformerConfig, vision_transformer) if "patch" in config else (PreActConfig, preact_resnet)


def model_name(config: Mapping[str, Any]) -> str:
    """The model's name, such as `PreAct-ResNet-20, 2rskip+ln`."""
    if "patch" in config:
        name = f"vision transformer of {config['depth']} blocks"
    else:
        name = config["name"] if "name" in config else f"PreAct-ResNet-{config['depth']}"
    return f"{name}, {config['connection']}"
