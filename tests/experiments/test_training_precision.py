"""What a training computes in: the recipe's format, but float32 where the CPU would emulate it."""

from __future__ import annotations

from typing import Any

import pytest
from rskip.experiments.training_precision import choose_precision

from rskip.experiments import training_precision


@pytest.mark.parametrize(
    ("flags", "gpus", "multiplies", "chosen"),
    [
        ({"bf16": True}, 0, True, "bfloat16"),
        ({"bf16": True}, 0, False, "float32"),
        ({"bf16": True}, 1, False, "bfloat16"),
        ({"bf16": False}, 0, True, "float32"),
        ({"fp16": True}, 1, True, "float16"),
        ({"amp": True}, 1, False, "float16"),
        ({}, 1, True, "float32"),
    ],
)
def test_bfloat16_is_emulated_nowhere(
    flags: dict[str, Any], gpus: int, multiplies: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_precision, "bfloat16_is_slow", lambda device: not multiplies)
    assert choose_precision(flags, gpus=gpus) == chosen
