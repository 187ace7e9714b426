"""What a vision run's result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rskip.vision.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class VisionSettings:
    """Settings of one vision run.

    train: dataset, model, schedule and optimiser, as `rskip vision train` takes them; the last iterate is evaluated.
    """

    train: TrainingSettings

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> VisionSettings:
        """Checks and builds; raises ValueError that names the key."""
        train = content.get("train") or {}
        if not isinstance(train, dict):
            raise ValueError(f"train is {train!r}; expected a mapping such as {{depth: 20, connection: 2rskip+ln}}")
        if missing := [name for name in ("dataset", "depth", "connection") if name not in train]:
            raise ValueError(f"train.{missing[0]} is missing")
        try:
            return cls(train=TrainingSettings.from_mapping(train))
        except ValueError as error:
            raise ValueError(f"train: {error}") from None
