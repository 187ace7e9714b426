"""What a vision run's result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rskip.settings.errors import SettingError
from rskip.vision.training.settings import TrainingSettings

REQUIRED = ("dataset", "depth", "connection")  # in a recipe, though TrainingSettings have defaults


class VisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one vision run: `train`, as `rskip vision train` takes it; the last iterate is evaluated."""

    train: TrainingSettings


def check_required(content: Mapping[str, Any]) -> None:
    """:raises SettingError: a recipe leaves out what it has to say."""
    train = content.get("train")
    if isinstance(train, Mapping) and (missing := [name for name in REQUIRED if name not in train]):
        raise SettingError(f"train.{missing[0]}", "is missing")
