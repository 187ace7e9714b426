"""Chooses a training's precision for its machine. A resumed training keeps its choices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rskip.machine import device as devices
from rskip.machine.ranks import Ranks
from rskip.vision.settings import Precision, TrainingSettings
from rskip.vision.training.training_folder import TrainingFolder

CHOSEN = ("precision", "compile")


def begun_with(folder: Path) -> dict[str, Any]:
    """The choices made when the training in this folder began; empty without a training."""
    settings: Any = TrainingFolder(folder).begun_with()
    return {} if settings is None else {name: settings[name] for name in CHOSEN}


def slow_rank(device: torch.device, ranks: Ranks) -> int | None:
    """The first rank whose device only emulates bfloat16, if any: all ranks compute in one precision."""
    first = int(ranks.min(torch.tensor(ranks.rank if devices.bfloat16_is_slow(device) else ranks.count)))
    return None if first == ranks.count else first


def choose(
    settings: TrainingSettings,
    *,
    said: Collection[str],
    folder: Path,
    device: torch.device,
    ranks: Ranks,
    slow: int | None,
) -> tuple[TrainingSettings, list[str]]:
    """The settings with the chosen precision, and a note if it differs from the requested one.

    Explicit settings stay. For the others, a resumed training keeps its own.

    :param said: names of the explicit settings.
    :param folder: the training's folder.
    :param slow: see `slow_rank`.
    """
    begun = {} if {*CHOSEN} <= {*said} else begun_with(folder)
    kept = {name: value for name, value in begun.items() if name not in said}
    settings = replace(settings, **kept)
    notes: list[str] = []
    if "precision" not in {*said, *kept}:
        precision, notes = _precision(settings.precision, device, ranks, slow=slow)
        settings = replace(settings, precision=precision)
    return settings, notes


def _precision(
    asked: Precision, device: torch.device, ranks: Ranks, *, slow: int | None
) -> tuple[Precision, list[str]]:
    """The asked one where every rank's device multiplies it; otherwise another one, with a note of it."""
    if asked != "bfloat16" or slow is None:
        return asked, []
    kind = "processor" if device.type == "cpu" else "GPU"
    which = f"this {kind}" if ranks.count == 1 else f"process {slow}'s {kind}"
    return "float32", [f"computes in float32: {which} only emulates bfloat16, which is slower"]
