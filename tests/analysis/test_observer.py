"""Probing the training of an image model, which does not change the training."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rskip.analysis.blocks import residual_blocks
from rskip.analysis.signals import SignalRecorder
from rskip.analysis.trace import TraceObserver, read_updates
from rskip.tasks.training import Interrupted
from rskip.vision import preact_resnet
from rskip.vision.data import ImageSet, TrainingBatches
from rskip.vision.training import Diverged, TrainingRun, TrainingSettings, train

LOOP = sys.modules["rskip.vision.training"]
SPEC = "sas:alpha_bias=3,beta_bias=-3"
SETTINGS: dict[str, Any] = {
    "depth": 8, "connection": SPEC, "batch_size": 16, "iterations": 11, "warmup_iterations": 2, "milestones": [9],
    "save_every": 4,
}  # fmt: skip


def noise(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(10, (count,), generator=generator), tuple("abcdefghij"))


@pytest.fixture(autouse=True)
def synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch has batches of 16, 16 and 8."""
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(40 if train else 30))


def run(folder: Path, trace: Path | None = None, *, every: int = 5, **changes: Any) -> dict[str, Any]:
    observer = None if trace is None else TraceObserver(trace, every=every, writes=True)
    train(TrainingSettings(**{**SETTINGS, **changes}), folder=folder, seed=5, device="cpu", observer=observer)
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def assert_same(ours: dict[str, Any], expected: dict[str, Any]) -> None:
    """Parameters, BatchNorm's statistics, the optimiser's state, losses."""
    for name, tensor in expected["model"].items():
        assert torch.equal(ours["model"][name], tensor), name
    for number, state in expected["optimiser"]["state"].items():
        assert torch.equal(ours["optimiser"]["state"][number]["momentum_buffer"], state["momentum_buffer"])
    assert [point["train_loss"] for point in ours["curve"]] == [point["train_loss"] for point in expected["curve"]]


def test_the_training_is_the_same_and_goes_on_with_its_trace(tmp_path, monkeypatch):
    unwatched, trace = run(tmp_path / "unwatched"), tmp_path / "probe.jsonl"
    assert_same(run(tmp_path / "watched", trace), unwatched)
    unbroken = trace.read_text()
    assert [each["update"] for each in read_updates(trace)] == [1, 5, 10]
    step = TrainingRun.step

    def stopped(self: TrainingRun) -> None:
        if self.iteration == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "step", stopped)
        with pytest.raises(Interrupted):
            run(tmp_path / "stopped")
    with trace.open("a") as file:
        file.write('{"update": 11')
    assert_same(run(tmp_path / "stopped", trace), unwatched)
    assert trace.read_text() == unbroken


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_line_is_what_the_iterations_batch_gives(precision, tmp_path):
    trace = tmp_path / "probe.jsonl"
    run(tmp_path / "out", trace, iterations=1, precision=precision, label_smoothing=0.1)
    (update,) = read_updates(trace)
    torch.manual_seed(5)
    model = preact_resnet(8, SPEC).to(memory_format=torch.channels_last)
    images, labels, _ = TrainingBatches(
        noise(40), batch_size=16, seed=5, device=torch.device("cpu"), channels_last=True
    ).batch(0)
    recorder = SignalRecorder(residual_blocks(model))
    with recorder.recording():
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=0.1)
        loss.backward()
    assert update["loss"] == pytest.approx(loss.item() / 16, rel=1e-4)
    norm = torch.cat([each.grad.flatten() for each in model.parameters()]).norm() / 16
    assert update["gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for ours, expected in zip(update["blocks"], recorder.rows(), strict=True):
        assert {k: pytest.approx(v, rel=1e-4) if isinstance(v, float) else v for k, v in expected.items()} == ours


def test_a_divergence_leaves_its_trace(tmp_path):
    trace = tmp_path / "probe.jsonl"
    with pytest.raises(Diverged):
        run(tmp_path / "out", trace, every=1, connection="1xskip", lr=1e30, warmup_iterations=0)
    first, *_, last = read_updates(trace)
    assert first["loss"] > 0 and last["loss"] is None and last["gradient_norm"] is None
