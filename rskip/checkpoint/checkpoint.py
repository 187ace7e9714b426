"""Represents the content of a checkpoint file. The module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Language

if TYPE_CHECKING:
    from torch import Tensor

# keys of `Checkpoint.config` of multilingual models, see `fairseq_languages`
LANGUAGES, PAIRS = "languages", "pairs"
_USED_BY = {
    "translation": "rskip translate",
    "language_modeling": "rskip generate",
    "captioning": "rskip caption",
    "vision": "rskip vision evaluate",
}


@dataclass(kw_only=True)
class Checkpoint:
    """A model's tensors, and the settings for building the model.

    :param model: tensors by fairseq's parameter names. Tied parameters share one tensor.
    :param config: plain JSON values: `task`, `model` (the model's settings; for fairseq's models, under fairseq's flat
        names), `arch`, `source_lang` and `target_lang` (None if the task has no languages, or if fairseq guessed them
        from the data folder), and the task's own values. `structured` is true if fairseq separates the model's settings
        from the run's. Then `model` has only the model's settings.
    :param averaged_from: file names of the averaged checkpoints; empty for a checkpoint from training.
    :param fairseq_state: everything else in fairseq's own file, apart from the optimiser's state; None for other files.
        A .pt file is written from it, and it overrides `config` there.
    """

    model: dict[str, Tensor]
    config: dict[str, Any]
    averaged_from: tuple[str, ...] = ()
    fairseq_state: dict[str, Any] | None = None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each tensor."""
        return {name: tuple(tensor.shape) for name, tensor in self.model.items()}

    @property
    def trained_on(self) -> list[str]:
        """The folders of fairseq's training data, from fairseq's own file."""
        state = self.fairseq_state or {}
        task = (state.get("cfg") or {}).get("task") or state.get("args") or {}
        data = (task if isinstance(task, Mapping) else vars(task)).get("data")
        return [folder for folder in data.split(":") if folder] if isinstance(data, str) else []


class _Config(msgspec.Struct, kw_only=True):
    """The keys of every `Checkpoint.config`."""

    task: str | None
    arch: str | None = None
    source_lang: Language | None = None
    target_lang: Language | None = None
    model: dict[str, Any]


def check_config(content: Any, *, source: str) -> dict[str, Any]:
    """Checks the content of a `Checkpoint.config`. Further keys are allowed.

    :param source: the file of the content.
    """
    config = convert(content, dict[str, Any], source=source)
    if "task" not in config and "model_type" in config:
        problem = "belongs to a Hugging Face model"
        advice = "`rskip import` converts translation models, and rskip.checkpoint.read_language_model reads GPT-2"
        raise SettingError("", problem, expected="a model of rskip", advice=f"{advice} and Llama", source=source)
    known = {name: config[name] for name in _Config.__struct_fields__ if name in config}
    return {**msgspec.structs.asdict(convert(known, _Config, source=source)), **config}


def of_other_task(config: Mapping[str, Any], expected: str) -> SettingError:
    """The error for a `Checkpoint.config` of another task than the expected one. It names the command for that task."""
    task, arch = config["task"], config.get("arch")
    described = f"{task!r} (architecture {arch!r})" if arch else repr(task)
    used_by = _USED_BY.get(str(task))
    advice = f"use `{used_by}`" if used_by else ""
    return SettingError("", f"a checkpoint of the task {described}, not of {expected}", advice=advice)
