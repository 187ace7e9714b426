"""Images on a GPU: trainings, resumed trainings, evaluation and gradients as on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rskip.vision import preact_resnet
from rskip.vision.evaluation import evaluate
from rskip.vision.training import TrainingSettings, train
from tests.vision.conftest import noise

LOOP = sys.modules["rskip.vision.training"]
SETTINGS: dict[str, Any] = {
    "depth": 8, "batch_size": 16, "iterations": 18, "milestones": (), "warmup_iterations": 2, "clip_norm": 1.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def in_float32(gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch has batches of 16, 16 and 8 images; products are float32's, and cuDNN takes the same way every time."""
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(40 if train else 30))
    monkeypatch.setattr("rskip.tasks.training.set_gpu_arithmetic", lambda *_, **__: None)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def end_of(folder: Path, device: str, observer: Any = None, **changes: Any) -> dict[str, torch.Tensor]:
    settings = TrainingSettings(**{**SETTINGS, **changes})
    result = train(settings, folder=folder, seed=3, device=device, observer=observer)
    return load_file(result.files.path / "model.safetensors")


def assert_near(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.parametrize("connection", ["1xskip", "2rskip+ln", "2rskip+bn", "sas"])
def test_a_training_is_the_cpus(connection, tmp_path):
    """Few iterations at a low rate: rounding grows from one to the next."""
    values = {"connection": connection, "lr": 1e-3, "warmup_lr": 1e-3}
    there = end_of(tmp_path / "gpu", "cuda", **values)
    assert_near(there, end_of(tmp_path / "cpu", "cpu", **values), 1e-2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_resumed_training_ends_as_an_unbroken_one(precision, tmp_path):
    values = {"connection": "2rskip+ln", "precision": precision, "lr": 1e-3}

    def killed(iteration: int, *_: Any, **__: Any) -> None:
        if iteration == 16:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        end_of(tmp_path / "resumed", "cuda", killed, **values)
    resumed = end_of(tmp_path / "resumed", "cuda", **values)
    assert_near(resumed, end_of(tmp_path / "straight", "cuda", **values), 1e-4 if precision == "float32" else 1e-2)


@pytest.mark.parametrize("connection", ["1xskip", "2rskip+ln", "sas"])
def test_an_iteration_waits_for_nothing(connection, tmp_path):
    """PyTorch itself raises where the host would wait."""

    def watch(iteration: int, *_: Any, **__: Any) -> None:
        torch.cuda.set_sync_debug_mode("error" if iteration in (2, 4) else "default")

    try:
        end_of(tmp_path, "cuda", watch, connection=connection, iterations=5, save_every=100)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_evaluation_is_the_cpus():
    torch.manual_seed(0)
    model = preact_resnet(20, "2rskip+ln")
    found, expected = (evaluate(model, noise(200), dataset="cifar10", device=device) for device in ("cuda", "cpu"))
    assert found.confusion == expected.confusion and found.top5_error == expected.top5_error
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
