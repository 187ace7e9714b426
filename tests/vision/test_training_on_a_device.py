"""Training on another device than the CPU: the same numbers, no wait between checks of the loss, few calls."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rskip.vision.training import (
    Start,
    TrainingFolder,
    TrainingRun,
    TrainingSettings,
    image_training,
    read_curve,
    train,
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


def killed(iteration: int, *_: Any, **__: Any) -> None:
    """An observer that ends the training in an epoch's second iteration."""
    if iteration == 5:
        raise RuntimeError("killed")


def test_a_training_is_the_cpus_and_goes_on_from_its_checkpoint_and_back(tmp_path, monkeypatch, emulated_cuda):
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(12 if train else 8))
    settings = TrainingSettings(**SETTINGS, connection="2rskip+ln", iterations=6)

    def go(folder: str, device: str, observer: Any = None) -> None:
        train(settings, folder=tmp_path / folder, seed=1, device=device, observer=observer)

    def end(folder: str) -> tuple[dict[str, torch.Tensor], list[float | None]]:
        model = load_file(tmp_path / folder / "model.safetensors")
        return model, [point.train_error for point in read_curve(tmp_path / folder / "curve.jsonl")]

    go("cpu", "cpu")
    for folder, first, second in (("there", "cpu", "cuda"), ("back", "cuda", "cpu")):
        with pytest.raises(RuntimeError, match="killed"):
            go(folder, first, killed)
        go(folder, second)
    model, errors = end("cpu")
    for folder in ("there", "back"):
        found, found_errors = end(folder)
        assert found_errors == errors
        for name, tensor in model.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)
