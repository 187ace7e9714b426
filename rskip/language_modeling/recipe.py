"""Defines the settings of a language-model run in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from rskip.language_modeling.settings import TrainingSettings
from rskip.settings.check import convert
from rskip.settings.errors import SettingError


class LanguageModelingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a language-model run. The last iterate is evaluated.

    :param data: a text that `rskip prepare --list` shows, or a folder that `rskip prepare --text` made, relative to the
        current folder.
    :param train: settings of the training.
    """

    data: Annotated[str, msgspec.Meta(min_length=1, extra={"expected": "the name of a text, or a prepared folder"})]
    train: TrainingSettings

    def to_plain(self) -> dict[str, Any]:
        """All settings that determine the result, as plain JSON values."""
        return {"data": self.data, "train": self.train.to_dict()}


def read_settings(content: Mapping[str, Any]) -> LanguageModelingSettings:
    """See `Task.read_settings`."""
    if isinstance(train := content.get("train"), Mapping) and "connection" not in train:
        raise SettingError("train.connection", "is missing")
    return convert(content, LanguageModelingSettings)


def check(settings: LanguageModelingSettings, *, gpus: int) -> None:
    """See `Task.check`."""
    if gpus > (size := settings.train.batch_size):
        raise SettingError("train.batch_size", f"is {size}", expected=f"at least one sequence for each of {gpus} GPUs")
