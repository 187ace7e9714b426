"""Reads and writes fairseq's own checkpoint files (.pt), and extracts a model's settings from those of a run."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from numpy._core import multiarray

from rskip.checkpoint.checkpoint import LANGUAGES, Checkpoint, check_config
from rskip.checkpoint.fairseq_languages import language_settings
from rskip.checkpoint.fairseq_settings import KNOWN, TRANSFORMER_SETTING, flat_settings
from rskip.checkpoint.tensors import check_tensors
from rskip.files.torch_file import read_torch_file
from rskip.files.whole import atomic_file
from rskip.machine.torch_errors import system_error
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, errors_about
from rskip.transformer.architectures import architecture_of


class _Meter:
    """Replaces the training meters that fairseq 0.5 to 0.9 stored in its files."""


@cache
def _allowed() -> list[Any]:
    """The types in fairseq's files. They only store settings and values of metrics, and execute nothing."""
    constructors = {name: getattr(multiarray, name) for name in ("scalar", "_reconstruct")}
    modules = ("numpy._core.multiarray", "numpy.core.multiarray")  # files written with numpy 1 have the second
    return [
        Namespace,
        *((_Meter, f"fairseq.meters.{name}") for name in ("AverageMeter", "StopwatchMeter", "TimeMeter")),
        numpy.dtype,
        numpy.ndarray,
        *{type(numpy.dtype(code)) for code in "?bBhHiIlLqQefd"},
        *((function, f"{module}.{name}") for name, function in constructors.items() for module in modules),
    ]


_AVERAGED_FROM = "averaged_from"
_KIND = "checkpoint of fairseq"
_METERS = "train_meters"  # in the extra state

# The key under which `_state_from_config` stores the config, since fairseq's old form would lose some settings.
_CONFIG = "rskip_config"
# Names of paths on a machine, and of the keys of `config` other than the model's settings.
_LEFT_OUT = re.compile(r".*(path|dir|dirs|file|files|filename|data)|_.*|arch|task|source_lang|target_lang")


_WRITTEN_BY = {"vision": "rskip vision train", "language_modeling": "rskip lm train"}
_TRAINED = {"settings", "optimiser", "iteration"}  # keys of every checkpoint.pt


class TrainingFileError(ValueError):
    """Raised for a file of rskip's own training where a checkpoint of fairseq is expected."""


def task_of_training_file(content: Mapping[str, Any]) -> str | None:
    """The task whose training wrote a .pt file with this content; None for any other file."""
    if not content.keys() >= _TRAINED:
        return None
    config = content.get("config")
    of_text = isinstance(config, dict) and config.get("task") == "language_modeling"
    return "language_modeling" if of_text else "vision"


def refuse_training_file(path: Path, content: Mapping[str, Any]) -> None:
    """:raises TrainingFileError: rskip's own training wrote the file. The error names what to give instead."""
    if (task := task_of_training_file(content)) is not None:
        evaluated = ", or evaluate the file with `rskip vision evaluate`" if task == "vision" else ""
        raise TrainingFileError(
            f"{path} was written by `{_WRITTEN_BY[task]}`: give the folder of the finished training run, {path.parent}"
            + evaluated
        )


class Validation(NamedTuple):
    """The validation score in a checkpoint.

    score: the run's --best-checkpoint-metric on the validation data; None without a validation.
    higher_is_better: the run's --maximize-best-checkpoint-metric.
    """

    score: float | None
    higher_is_better: bool


def read_fairseq(path: Path) -> Checkpoint:
    """Reads a .pt file that fairseq wrote, without the optimiser's state. Nothing in the file is executed."""
    state = _load(path)
    model = check_tensors(state.pop("model"), source=str(path))
    state.pop("last_optimizer_state", None)
    averaged_from = convert(state.pop(_AVERAGED_FROM, ()), tuple[str, ...], name=_AVERAGED_FROM, source=str(path))
    try:
        content = _config_from_state(state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a {_KIND}: its settings are damaged ({error})") from error
    if _CONFIG not in state:
        with errors_about(path):
            content |= language_settings(content["task"], _task_settings(state), folder=path.parent)
    config = check_config(content, source=str(path))
    return Checkpoint(model=model, config=config, averaged_from=averaged_from, fairseq_state=state)


def write_fairseq(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a .pt file that fairseq-generate and `from_pretrained` load."""
    if checkpoint.fairseq_state is None and LANGUAGES in checkpoint.config:
        problem = f"{path}: fairseq's settings can't express the languages of a multilingual model"
        raise SettingError("", problem, advice="write a .safetensors file")
    state = {**(checkpoint.fairseq_state or _state_from_config(checkpoint.config)), "model": checkpoint.model}
    if checkpoint.averaged_from:
        state[_AVERAGED_FROM] = list(checkpoint.averaged_from)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            raise system_error(error, path) or OSError(f"could not write {path}: {_first_line(error)}") from error


def read_validation(path: Path) -> Validation:
    """The validation score inside a .pt file, without reading its tensors into memory."""
    state = _load(path, mmap=True)
    try:
        groups = _settings(state.get("cfg"))
        options = _settings(groups.get("checkpoint") if groups else state.get("args"))
        score = _settings(state.get("extra_state")).get("val_loss")
        return Validation(
            score=None if score is None else float(score),
            higher_is_better=bool(options.get("maximize_best_checkpoint_metric", False)),
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is not a {_KIND}: its validation is damaged ({error})") from error


def read_updates(path: Path) -> int | None:
    """The number of finished updates in a .pt file, or None. This doesn't read the tensors into memory."""
    history = _load(path, mmap=True).get("optimizer_history")
    updates = _settings(history[-1]).get("num_updates") if isinstance(history, list) and history else None
    return updates if isinstance(updates, int) else None


def _config_from_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The `config` of a Checkpoint as plain JSON values, from the dictionary in fairseq's .pt file.

    If fairseq has a separate group of the model's settings (`structured`), the result has the whole group. Otherwise
    the run's flags are mixed with the model's, and flags that are not the model's (optimiser, data, folders, hosts) are
    dropped. These are the flags in fairseq's other groups. In files of versions without groups, they are the flags that
    no Transformer has. Values that look like paths are dropped, unless they are settings of a Transformer.
    """
    if _CONFIG in state:
        return _settings(state[_CONFIG])
    groups = _settings(state.get("cfg"))
    flat = _settings(groups.get("model") if groups else state.get("args"))
    structured = isinstance(groups.get("model"), Mapping)
    if structured:
        flat = flat_settings(flat)
    task_values = _task_settings(state)

    run_options = set(groups)
    for name, group in groups.items():
        if name != "model" and isinstance(group, Mapping):
            run_options.update(group)
    model = {}
    for name, given in flat.items():
        owned = structured or TRANSFORMER_SETTING.fullmatch(name)
        if _LEFT_OUT.fullmatch(name) or not (owned or (groups and name not in run_options)):
            continue
        value = given.item() if isinstance(given, numpy.generic) else given
        if _is_plain(value) and (name in KNOWN or not _is_path(value)):
            model[name] = list(value) if isinstance(value, tuple) else value
        elif owned and not _is_plain(value):
            raise TypeError(f"{name} is a {type(value).__name__}")
    config = {
        "arch": flat.get("arch") or flat.get("_name"),
        "task": task_values.get("_name") or task_values.get("task") or "translation",
        "source_lang": task_values.get("source_lang") or flat.get("source_lang"),
        "target_lang": task_values.get("target_lang") or flat.get("target_lang"),
        "model": model,
    }
    return {**config, "structured": True} if structured else config


def _task_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    groups = _settings(state.get("cfg"))
    return _settings(groups.get("task") if groups else state.get("args"))


def _state_from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq's dictionary for a .pt file, without the model's tensors.

    It has the form of versions without groups of settings. fairseq fills the rest in with its defaults.

    :raises SettingError: fairseq has no such model.
    """
    task = config["task"]
    # fairseq doesn't know the architectures of imported models
    arch = (architecture_of(config) if task == "translation" else None) or config["arch"]
    if arch is None or task in ("vision", "captioning"):
        problem = f"fairseq has no architecture for this {task} model"
        raise SettingError("", problem, advice="write a .safetensors file")
    args = Namespace(
        arch=arch,
        task=task,
        source_lang=config["source_lang"],
        target_lang=config["target_lang"],
        **config["model"],
    )
    return {
        _CONFIG: {**config, "arch": arch},
        "args": args,
        "cfg": None,
        "criterion": None,
        "optimizer_history": [
            {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0},
        ],
        "task_state": {},
        "extra_state": {},
    }


def _load(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    state = read_torch_file(path, kind=_KIND, allowed=_allowed(), mmap=mmap)
    refuse_training_file(path, state)
    if not isinstance(state.get("model"), Mapping) or not (state.get("cfg") or state.get("args")):
        raise ValueError(f"{path} is not a {_KIND}: expected 'model', and 'cfg' or 'args'")
    extra_state = state.get("extra_state")
    if isinstance(extra_state, dict):
        extra_state.pop(_METERS, None)
    return state


def _settings(content: Any) -> dict[str, Any]:
    """A group of fairseq's settings, which is a Namespace, a mapping, or missing."""
    settings = vars(content) if isinstance(content, Namespace) else content or {}
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise TypeError(f"a {type(content).__name__}, expected names and values")
    return dict(settings)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _is_plain(value: Any) -> bool:
    """Whether the value is a JSON scalar or a list of them."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (str, bool, int, float))


def _is_path(value: Any) -> bool:
    """Whether the value looks like a path, or is a list with one."""
    if isinstance(value, (list, tuple)):
        return any(_is_path(item) for item in value)
    return isinstance(value, str) and bool(re.search(r"[/\\]|^~", value))
