"""A trained model read back: from a training's folder, one of its files, or a published folder. No pickle is run.

    model.pt            what a finished training leaves
    checkpoint.pt       what an unfinished one resumes from
    model.safetensors   published weights, with config.json beside them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec
from torch import Tensor

from rskip.checkpoint.files import CONFIG, OF_EVERY_TASK, read_safetensors
from rskip.connections import parse_connection
from rskip.files.state import as_state
from rskip.files.torch_file import read_torch_file, weights_difference
from rskip.settings.check import convert, field_names, to_plain
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Whole
from rskip.tasks.registry import task_name
from rskip.vision.cifar_resnet import PreActResNet, preact_resnet
from rskip.vision.transforms import CLASSES

FILES = ("model.pt", "checkpoint.pt", "model.safetensors")  # of a folder the first that is there
TASK = "vision"
Dataset = Literal["cifar10", "cifar100"]


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `preact_resnet` builds a model from, as `PreActResNet.config` has it."""

    depth: int
    connection: str
    num_classes: int
    shortcut: str
    block: str
    shortcut_input: str = "raw"


class _LastIterate(msgspec.Struct, frozen=True, kw_only=True):
    """The content of model.pt."""

    config: ModelConfig
    dataset: Dataset
    iteration: Whole
    model: dict[str, Tensor]


class _Settings(TypedDict):
    dataset: Dataset


_Weights = TypedDict("_Weights", {"fc.bias": Tensor})


class _Training(TypedDict):
    """The content of checkpoint.pt. Holds the keys that this module reads."""

    settings: _Settings
    iteration: Whole
    iterations: Count
    model: _Weights


class PublishedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The content of config.json beside published weights."""

    model: ModelConfig
    dataset: Dataset
    classes: tuple[str, ...] | None = None  # names of the logits


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What a model's file says of it.

    path: the file of the weights.
    config: what `preact_resnet` builds it from.
    dataset: that it was trained on, `cifar10` or `cifar100`.
    classes: names of its logits, as published weights have them, else the dataset's; None: config.json has none.
    iteration: of its training, where the file says so; iterations: how many the training has, likewise.
    """

    path: Path
    config: Mapping[str, Any]
    dataset: str
    classes: tuple[str, ...] | None
    iteration: int | None = None
    iterations: int | None = None

    @property
    def name(self) -> str:
        """Such as `PreAct-ResNet-20, 2rskip+ln`."""
        return f"PreAct-ResNet-{self.config['depth']}, {self.config['connection']}"

    @property
    def finished(self) -> bool:
        """Whether the training had ended; a published model's has."""
        return self.iterations is None or self.iteration is None or self.iteration >= self.iterations

    @property
    def status(self) -> str:
        """A suffix to the name that says how far an unfinished training is; empty for a finished one."""
        if self.finished:
            return ""
        return f", an unfinished training: iteration {self.iteration:,} of {self.iterations:,}"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the classes as plain JSON values."""
        return {
            "path": str(self.path),
            "config": dict(self.config),
            "dataset": self.dataset,
            "iteration": self.iteration,
            "iterations": self.iterations,
            "finished": self.finished,
        }


def load_model(
    path: Path, *, expected: Mapping[str, Any] | None = None
) -> tuple[PreActResNet, ModelDescription]:
    """The model on the CPU in eval mode, and its description.

    :param path: a file of FILES, or a folder that holds one; model.pt goes before checkpoint.pt.
    :param expected: values that the file must have, such as {"depth": 110, "connection": "2rskip+ln"}: keys of the
        model's config, or `dataset`.
    :raises FileNotFoundError: no model there.
    :raises ValueError: damaged, foreign, other than expected, or with weights that are not those of its config.
    """
    file = model_file(path)
    description, state = _read_published(file) if file.suffix == ".safetensors" else _read_pt(file)
    _check_expected(description, expected or {})
    try:
        model = preact_resnet(**description.config)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if difference := weights_difference(model.state_dict(), state):
        raise ValueError(f"{file} says {description.name}, but its weights are another model's: {difference}")
    model.load_state_dict(state)
    return model.eval(), description


def model_file(path: Path) -> Path:
    """The file itself, or the one of FILES in a folder.

    :raises FileNotFoundError: nothing there, or a folder without any.
    :raises ValueError: the name says no format that is known.
    """
    if path.is_file():
        if path.suffix not in (".pt", ".safetensors"):
            raise ValueError(f"{path}: expected {', '.join(FILES)} or a folder with one of them")
        return path
    if not path.exists():
        raise FileNotFoundError(f"no model {path}: expected a training's folder, or its {' or '.join(FILES)}")
    for name in FILES:
        if (path / name).is_file():
            return path / name
    below = sorted({found.parent for name in FILES for found in path.glob(f"*/{name}")})
    hint = f"; there is one in {below[0]}" if below else ""
    raise FileNotFoundError(f"{path} holds no model: expected {', '.join(FILES)} in it{hint}")


def _read_pt(path: Path) -> tuple[ModelDescription, dict[str, Tensor]]:
    """model.pt or checkpoint.pt of a training."""
    content = read_torch_file(path, kind="file of `rskip vision train`")
    source, advice = str(path), "give a file that `rskip vision train` wrote"
    if "settings" in content:
        training = as_state(content, _Training, source=source, advice=advice)
        settings, weights, iterations = training["settings"], training["model"], training["iterations"]
        config: dict[str, Any] = {name: settings.get(name) for name in field_names(ModelConfig) if name in settings}
        config["num_classes"] = weights["fc.bias"].numel()
        last = _LastIterate(
            config=as_state(config, ModelConfig, source=source, advice=advice),
            dataset=settings["dataset"],
            iteration=training["iteration"],
            model=content["model"],
        )
    else:
        last = as_state(content, _LastIterate, source=source, advice=advice)
        iterations = last.iteration
    description = ModelDescription(
        path=path,
        config=to_plain(last.config),
        dataset=last.dataset,
        classes=CLASSES[last.dataset],
        iteration=last.iteration,
        iterations=iterations,
    )
    return description, last.model


def _read_published(path: Path) -> tuple[ModelDescription, dict[str, Tensor]]:
    """The weights of a published folder, and the content of its config.json."""
    checkpoint, source = read_safetensors(path), str(path.with_name(CONFIG))
    if task_name(task := checkpoint.config["task"]) != TASK:
        raise SettingError.of_value("task", task, TASK, source=source)
    own = {key: value for key, value in checkpoint.config.items() if key not in OF_EVERY_TASK}
    config = convert(own, PublishedConfig, source=source)
    description = ModelDescription(
        path=path, config=to_plain(config.model), dataset=config.dataset, classes=config.classes
    )
    return description, checkpoint.model


def _check_expected(description: ModelDescription, expected: Mapping[str, Any]) -> None:
    found = {**description.config, "dataset": description.dataset}
    asked = dict(expected)
    if "connection" in asked:
        asked["connection"] = str(parse_connection(asked["connection"]))
    differing = [key for key, value in asked.items() if found[key] != value]
    if differing:
        raise ValueError(
            f"{description.path} holds {_listed(found, differing)}, not the {_listed(asked, differing)} asked for"
        )


def _listed(values: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key} {values[key]}" for key in keys)
