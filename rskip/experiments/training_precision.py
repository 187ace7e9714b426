"""The number format that a training computes in."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rskip.machine.device import bfloat16_is_slow

LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags


def recipe_precision(train: Mapping[str, object]) -> str:
    """What the flags of fairseq-train ask for: "float32", "bfloat16" or "float16"."""
    return next((name for flag, name in LOW_PRECISION.items() if train.get(flag)), "float32")


def choose_precision(train: Mapping[str, object], *, gpus: int) -> str:
    """What a training with these flags of fairseq-train computes in (`precision_here`)."""
    return precision_here(recipe_precision(train), gpus=gpus)


def precision_here(asked: str, *, gpus: int) -> str:
    """What is asked for, but float32 for bfloat16 on a CPU that doesn't multiply it.

    PyTorch emulates it there, several times slower than float32 (docs/speed.md); float32 is the more exact.

    :param gpus: how many, 0 for the CPU.
    """
    if asked == "bfloat16" and gpus == 0 and bfloat16_is_slow(torch.device("cpu")):
        return "float32"
    return asked
