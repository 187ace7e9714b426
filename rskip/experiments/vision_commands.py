"""The command lines that a vision run consists of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rskip.experiments.process import executable
from rskip.experiments.recipe import Recipe
from rskip.experiments.vision_settings import VisionSettings


def train_command(
    recipe: Recipe[VisionSettings], *, seed: int, output: Path, data: Path | None, gpus: int, precision: str
) -> list[str]:
    """`rskip vision train`, under `torchrun` for several GPUs; it goes on by itself where `output` has a checkpoint.

    :param output: the training's folder.
    :param data: where the dataset is; None: where downloads are kept.
    :param gpus: how many, all of this machine; 0 for the CPU. The batch is the recipe's on any number.
    :param precision: what the training computes in, whatever the recipe says.
    """
    program = ["rskip"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("rskip")]
    changes = [f"{key}={json.dumps(value)}" for key, value in _changed(recipe).items()]
    return [
        *program,
        *("vision", "train", str(recipe.path)),
        *(["--set", *changes] if changes else []),
        *("--seed", str(seed), "--output", str(output)),
        *_data(data),
        *("--precision", precision),
        *_device(gpus),
    ]


def evaluate_command(*, model: Path, data: Path | None, gpus: int) -> list[str]:
    """`rskip vision evaluate`, on the test images in float32."""
    return ["rskip", "vision", "evaluate", str(model), *_data(data), *_device(min(gpus, 1))]


def _changed(recipe: Recipe[VisionSettings]) -> dict[str, Any]:
    """The settings that the recipe's overrides change, by the names that `rskip vision train` has for them."""
    if "train" in recipe.overrides:  # all at once
        return recipe.settings.train.to_dict()
    return {key.removeprefix("train."): value for key, value in recipe.overrides.items()}


def _data(folder: Path | None) -> list[str]:
    return ["--data", str(folder)] if folder is not None else []


def _device(gpus: int) -> list[str]:
    """Named on the CPU alone: of GPUs each process takes its own."""
    return ["--device", "cpu"] if gpus == 0 else []
