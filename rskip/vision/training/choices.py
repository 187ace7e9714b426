"""Chooses the precision of a training for its machine, and the schedule for your own images."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rskip.machine import device as devices
from rskip.machine.ranks import Ranks
from rskip.vision.settings import TrainingSettings
from rskip.vision.training.training_folder import TrainingFolder

CHOSEN = ("precision", "compile")
MOST_EPOCHS, LEAST_EPOCHS = 300, 30
FEW_IMAGES = 2_500


def own_schedule(images: int, said: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings of a training on your own images.

    - Epochs: 30 √(50,000 / images), between 30 and 300.
    - Batches: 128 images, or 32 for fewer than FEW_IMAGES or a model of torchvision.
    - Learning rate (one_cycle): rises to 0.1 per 128 images of a batch, and falls to 0.
    - Nesterov momentum, weight decay 5e-4.

    :param images: number of training images, before validation images are split off.
    :param said: the user's settings, which are omitted. With another schedule than one_cycle, only length and batches
        are chosen.
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


def slow_rank(device: torch.device, ranks: Ranks) -> int | None:
    """The first rank whose device has no bfloat16 instructions, if any. All ranks compute in the same precision."""
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

    Explicit settings don't change. For the others, a resumed training uses its earlier choices.

    :param said: the names of the explicit settings.
    :param folder: the training's folder.
    :param slow: see `slow_rank`.
    """
    unsaid = [name for name in CHOSEN if name not in said]
    begun = TrainingFolder(folder).begun_with() if unsaid else None
    kept: dict[str, Any] = {} if begun is None else {name: begun[name] for name in unsaid}
    settings = replace(settings, **kept)
    if "precision" in {*said, *kept} or settings.precision != "bfloat16" or slow is None:
        return settings, []
    kind = "CPU" if device.type == "cpu" else "GPU"
    which = f"this {kind}" if ranks.count == 1 else f"process {slow}'s {kind}"
    note = f"computing in float32: {which} has no bfloat16 instructions"
    return replace(settings, precision="float32"), [note]
