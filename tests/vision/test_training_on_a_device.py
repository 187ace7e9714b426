"""Training on another device than the CPU: the same numbers, no wait between checks of the loss, few calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.vision.training import (
    Start,
    TrainingFolder,
    TrainingRun,
    TrainingSettings,
    image_training,
)
from tests.vision.conftest import noise

LOOP = sys.modules["rskip.vision.training"]
SETTINGS: dict[str, Any] = {"depth": 8, "batch_size": 4, "milestones": (), "warmup_iterations": 2}


def training(folder: Path, **settings: Any) -> TrainingRun:
    """On the pretend GPU, after two iterations."""
    chosen = TrainingSettings(**{**SETTINGS, "iterations": 50, **settings})
    start = Start(settings=chosen, files=TrainingFolder(folder), seed=1, device=torch.device("cuda", 0))
    run = image_training(start, noise(12), noise(8))
    for _ in range(2):
        run.step()
    return run


def test_an_iteration_waits_for_nothing(tmp_path, emulated_cuda):
    run = training(tmp_path, connection="sas", decay="weights", clip_norm=1.0, label_smoothing=0.1)
    emulated_cuda.clear()
    run.step()
    assert emulated_cuda.calls["convolution"] == 7 and not emulated_cuda.synchronisations


@pytest.mark.parametrize(("connection", "most"), [("1xskip", 133), ("2rskip+ln", 166), ("sas", 382)])
def test_the_calls_of_an_iteration(connection, most, tmp_path, emulated_cuda):
    """An update, and the counts of all batch normalisations, are a few calls; docs/gpu.md has depth 110."""
    run = training(tmp_path, connection=connection, precision="bfloat16")
    emulated_cuda.clear()
    run.step()
    assert emulated_cuda.calls.total() <= most
    assert emulated_cuda.calls["_foreach_add_"] == 3  # counts, momentum, parameters


def test_a_check_is_few_calls_and_one_wait_and_a_checkpoint_is_on_the_cpu(tmp_path, emulated_cuda):
    run = training(tmp_path)
    emulated_cuda.clear()
    run.check()
    assert emulated_cuda.calls.total() <= 8 and emulated_cuda.synchronisations.total() == 1
    run.save()
    content = torch.load(run.files.checkpoint, weights_only=True)
    assert all(tensor.device.type == "cpu" for tensor in content["model"].values())
