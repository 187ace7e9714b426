"""Builds the model that a command names: a Hugging Face folder, a model of timm, or what your function returns."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from rskip.settings.errors import SettingError

EXPECTED = "hf:FOLDER or a folder with a config.json, timm:NAME, or MODULE:FUNCTION"


def build_named(name: str, **sizes: int) -> nn.Module:
    """The model with random weights.

    :param name: see `EXPECTED`.
    :param sizes: `classes` and `image_size` of images, `vocab_size` and `context` of a text, as far as they are known.
        A function gets those that it has parameters for.
    :raises SettingError: there is no such model.
    """
    library, _, rest = name.partition(":")
    if library == "timm" and rest:
        return _of_timm(name, rest, sizes)
    if folder := transformers_folder(name):
        return _of_transformers(folder, sizes)
    if not rest:
        raise SettingError.of_value("model", name, EXPECTED)
    function = load_function("model", name, EXPECTED)
    signature = inspect.signature(function)
    given = {size: value for size, value in sizes.items() if size in signature.parameters}
    try:
        signature.bind(**given)
    except TypeError as error:
        advice = "write one that builds the model, such as def build(): return GPT(config)"
        expected = f"a function without other arguments ({error})"
        raise SettingError.of_value("model", name, expected, advice=advice) from error
    model = function(**given)
    if not isinstance(model, nn.Module):
        expected = f"a function that returns a torch.nn.Module, not {type(model).__name__}"
        raise SettingError.of_value("model", name, expected)
    return model


def transformers_folder(name: str) -> str | None:
    """The folder, or the name on the hub, of a Hugging Face model; None if the name is of another model."""
    if name.startswith("hf:"):
        return name.removeprefix("hf:")
    return name if Path(name, "config.json").is_file() else None


def load_function(setting: str, name: str, expected: str = "MODULE:FUNCTION") -> Callable[..., Any]:
    """The function MODULE:FUNCTION, also of a module in the current folder.

    :raises SettingError: there is none.
    """
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except Exception as error:  # of any type: the module is the user's
        raise SettingError.of_value(setting, name, f"{expected}; {type(error).__name__}: {error}") from error
    return found


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError("model", f"needs {name}", advice=f"pip install {name}") from error


def _of_timm(name: str, architecture: str, sizes: dict[str, int]) -> nn.Module:
    timm = _library("timm")
    options = {"num_classes": sizes["classes"]} if "classes" in sizes else {}
    try:
        if "image_size" in sizes:
            try:
                sized: nn.Module = timm.create_model(architecture, img_size=sizes["image_size"], **options)
                return sized
            except TypeError:  # a convolutional network, which takes any size
                pass
        model: nn.Module = timm.create_model(architecture, **options)
    except (RuntimeError, AssertionError) as error:
        expected = f"timm: with a name of timm.list_models() and a size that it takes ({error})"
        raise SettingError.of_value("model", name, expected) from error
    return model


def config_of(folder: str) -> Any:
    """The configuration in a Hugging Face folder, or of a name of the hub.

    :raises SettingError: there is none, or transformers is missing.
    """
    if "/" not in folder and not Path(folder).is_dir():
        raise SettingError.of_value("model", folder, f"{EXPECTED}; there is no such folder")
    try:
        return _library("transformers").AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise SettingError.of_value("model", folder, f"{EXPECTED}; {str(error).partition(chr(10))[0]}") from error


def _of_transformers(folder: str, sizes: dict[str, int]) -> nn.Module:
    transformers, config = _library("transformers"), config_of(folder)
    if "vocab_size" in sizes:
        config.vocab_size = sizes["vocab_size"]
    kind = next(iter(config.architectures or ()), None)
    if kind and not hasattr(transformers, kind):
        raise SettingError.of_value("model", folder, f"a model of transformers; its config.json names {kind}")
    model: nn.Module = getattr(transformers, kind)(config) if kind else transformers.AutoModel.from_config(config)
    return model
