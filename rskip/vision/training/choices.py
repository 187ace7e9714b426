"""Chooses a training's precision for its machine, which a resumed training keeps, and the schedule of own images."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rskip.machine import device as devices
from rskip.machine.ranks import Ranks
from rskip.vision.settings import Precision, TrainingSettings
from rskip.vision.training.training_folder import TrainingFolder

CHOSEN = ("precision", "compile")
MOST_EPOCHS, LEAST_EPOCHS = 300, 30
FEW_IMAGES = 2_500


def own_schedule(images: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training on your own images where the user says nothing.

    Epochs: 30 √(50,000 / images), between 30 and 300. Batches: 128 images, or 32 where there are fewer than FEW_IMAGES
    or the model is torchvision's. Learning rate: rises to 0.1 for 128 images, in proportion for other batches, and
    falls to 0 (one_cycle). Nesterov's momentum, weight decay 5e-4.

    :param images: for training, before validation is split off.
    :param said: the settings that the user gave, which are left out. Of another schedule than one_cycle only the length
        and the batches are chosen.
    """
    small = images < FEW_IMAGES or said.get("model", "preact_resnet") != "preact_resnet"
    rule: dict[str, Any] = {"batch_size": 32 if small else 128}
    if said.get("iterations") is None and said.get("epochs") is None:
        rule["epochs"] = min(MOST_EPOCHS, max(LEAST_EPOCHS, round(30 * math.sqrt(50_000 / max(1, images)))))
    if said.get("schedule", "one_cycle") == "one_cycle":
        batch = said.get("batch_size", rule["batch_size"])
        lr = 0.1 * batch / 128 if isinstance(batch, int) and batch > 0 else 0.1
        rule |= {"schedule": "one_cycle", "lr": lr, "warmup_lr": lr / 20, "nesterov": True, "weight_decay": 5e-4}
    return {name: value for name, value in rule.items() if name not in said or said[name] is None}


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
    kind = "CPU" if device.type == "cpu" else "GPU"
    which = f"this {kind}" if ranks.count == 1 else f"process {slow}'s {kind}"
    return "float32", [f"computing in float32: {which} only emulates bfloat16, which is slower"]
