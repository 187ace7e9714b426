"""A trained model read back: from a training's folder, one of its files, or a published folder. No pickle is run.

    model.pt            what a finished training leaves
    checkpoint.pt       where an unfinished one stands
    model.safetensors   published weights, with config.json beside them
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rskip.connections import parse_connection
from rskip.vision.preact_resnet import PreActResNet, preact_resnet
from rskip.vision.torch_file import read_torch_file

FILES = ("model.pt", "checkpoint.pt", "model.safetensors")  # of a folder the first that is there
CONFIG_FILE = "config.json"
FORMAT = 1  # of config.json
TASK = "image-classification"
_CONFIG_TYPES = {"depth": int, "connection": str, "num_classes": int, "shortcut": str, "block": str}


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What a model's file says of it.

    path: the file of the weights.
    config: what `preact_resnet` builds it from.
    dataset: that it was trained on, `cifar10` or `cifar100`.
    iteration: of its training, where the file says so; iterations: how many the training has, likewise.
    """

    path: Path
    config: Mapping[str, Any]
    dataset: str
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
    def standing(self) -> str:
        """Where an unfinished training stands, to follow the name; empty for a finished one."""
        if self.finished:
            return ""
        return f", an unfinished training: iteration {self.iteration:,} of {self.iterations:,}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {**asdict(self), "path": str(self.path), "finished": self.finished}


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
    description, state = _read_safetensors(file) if file.suffix == ".safetensors" else _read_pt(file)
    _check_expected(description, expected or {})
    try:
        model = preact_resnet(**description.config)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    _check_state(description, model.state_dict(), state)
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
    content = read_torch_file(path)
    try:
        if "config" in content:
            config, dataset, iterations = content["config"], content["dataset"], content["iteration"]
        else:
            settings, iterations = content["settings"], content["iterations"]
            config = {**settings, "num_classes": len(content["model"]["fc.bias"])}
            dataset = settings["dataset"]
        return (
            _description(path, config, dataset, iteration=content["iteration"], iterations=iterations),
            _state(content["model"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no file of `rskip vision train`: {_reason(error)}") from error


def _read_safetensors(path: Path) -> tuple[ModelDescription, dict[str, Tensor]]:
    """A published folder: weights, and config.json beside them."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    config_path = path.parent / CONFIG_FILE
    if not config_path.is_file():
        raise FileNotFoundError(f"{config_path} is missing: an image model has it beside {path.name}")
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{config_path} is not valid JSON: {error}") from error
    try:
        if config["task"] != TASK:
            raise ValueError(f"{config_path} is of the task {config['task']!r}: expected {TASK!r}")
        if type(config["format"]) is not int:
            raise TypeError(f"its format is {config['format']!r}, expected a whole number")
        if config["format"] != FORMAT:
            raise ValueError(
                f"{config_path} has format {config['format']}, but this rskip reads format {FORMAT}: "
                "upgrade rskip (pip install --upgrade rskip)"
            )
        description = _description(path, config["model"], config["dataset"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{config_path} is damaged: {_reason(error)}") from error
    try:
        return description, load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} can't be read as safetensors ({error}): it is cut off or damaged, get the whole file again"
        ) from error


def _description(
    path: Path, config: Any, dataset: Any, *, iteration: int | None = None, iterations: int | None = None
) -> ModelDescription:
    """Checked as far as building the model needs it."""
    for key, kind in _CONFIG_TYPES.items():
        if type(config[key]) is not kind:
            raise ValueError(f"{path}: its config's {key} is {config[key]!r}, expected {kind.__name__}")
    config = {key: config[key] for key in _CONFIG_TYPES}
    return ModelDescription(
        path=path, config=config, dataset=str(dataset), iteration=iteration, iterations=iterations
    )


def _state(content: Any) -> dict[str, Tensor]:
    """The tensors by name."""
    if not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise TypeError("its model holds other things than tensors")
    return dict(content)


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


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


def _check_state(description: ModelDescription, built: Mapping[str, Tensor], stored: Mapping[str, Tensor]) -> None:
    """The stored tensors are those that the config asks for, in name and shape."""
    beginning = f"{description.path} says {description.name}, but its weights are another model's"
    for name in sorted(built.keys() | stored.keys()):
        if name not in stored:
            raise ValueError(f"{beginning}: {name} is missing")
        if name not in built:
            raise ValueError(f"{beginning}: {name} is not part of it")
        if built[name].shape != stored[name].shape:
            raise ValueError(
                f"{beginning}: {name} has the shape {tuple(stored[name].shape)}, expected {tuple(built[name].shape)}"
            )
