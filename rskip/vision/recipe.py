"""Defines the settings of a vision run in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.vision.settings import TrainingSettings, without_removed

REQUIRED = ("dataset", "depth", "connection")  # required in a recipe, although TrainingSettings has defaults
REQUIRED_OWN = ("connection",)  # required in addition to `data`


class VisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a vision run. `train` has the settings of `rskip vision train`. The last iterate is evaluated."""

    train: TrainingSettings

    def to_plain(self) -> dict[str, Any]:
        """All settings that determine the result, as plain JSON values."""
        return {"train": self.train.to_dict()}


def read_settings(content: Mapping[str, Any]) -> VisionSettings:
    """See `Task.read_settings`."""
    if isinstance(train := content.get("train"), Mapping):
        required = REQUIRED if train.get("data") is None else REQUIRED_OWN
        if missing := [name for name in required if name not in train]:
            raise SettingError(f"train.{missing[0]}", "is missing")
        content = {**content, "train": without_removed(train)}
    return convert(content, VisionSettings)


def check(settings: VisionSettings, *, gpus: int) -> None:
    """See `Task.check`."""
    if gpus > (size := settings.train.batch_size):
        raise SettingError("train.batch_size", f"is {size}", expected=f"at least one image for each of {gpus} GPUs")
