"""The work of `rskip adapt`: builds the model, adapts it, and prints what changes."""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from torch import nn

from rskip.connections import HOST_NEEDS
from rskip.nn import adapt, adaptation
from rskip.settings.errors import SettingError


def show_changes(name: str, connection: str, blocks: str | None) -> None:
    """Prints the lines of a model that would change, then what `adapt` did to it.

    :raises SettingError: there is no such model, or `adapt` refuses it.
    """
    model = _built(name)
    adapted = adapt(copy.deepcopy(model), connection, blocks=blocks, host_supplies=HOST_NEEDS)
    print("The lines that change:\n")
    adapt(model, connection, blocks=blocks, dry_run=True)
    print(f"\nWith random weights, all probes passed.\n\n{adaptation(adapted)}")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError("model", f"needs {name}", advice=f"pip install {name}") from error


def _built(name: str) -> nn.Module:
    """The model with random weights.

    :raises SettingError: there is no such model.
    """
    library, _, rest = name.partition(":")
    if library == "timm" and rest:
        timm = _library("timm")
        try:
            model: Any = timm.create_model(rest)
        except RuntimeError as error:
            raise SettingError.of_value("model", name, "timm: with a name of timm.list_models()") from error
        return model
    if Path(name, "config.json").is_file():
        transformers = _library("transformers")
        config = transformers.AutoConfig.from_pretrained(name)
        kind = next(iter(json.loads(Path(name, "config.json").read_text()).get("architectures") or ()), None)
        model = getattr(transformers, kind)(config) if kind else transformers.AutoModel.from_config(config)
        return model
    expected = "a folder with a config.json, timm:NAME, or MODULE:FUNCTION"
    if not rest:
        raise SettingError.of_value("model", name, expected)
    sys.path.insert(0, os.getcwd())
    try:
        model = getattr(importlib.import_module(library), rest)()
    except (ImportError, AttributeError) as error:
        raise SettingError.of_value("model", name, f"{expected}; {error}") from error
    finally:
        sys.path.pop(0)
    if not isinstance(model, nn.Module):
        expected = f"a function that returns a torch.nn.Module, not {type(model).__name__}"
        raise SettingError.of_value("model", name, expected)
    return model
