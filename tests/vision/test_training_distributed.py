"""Processes that torchrun would start train as one process does, stop together, and report a mistake once.

As a program of each such process this file does all of that in one go: FOLDER.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as distributed
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from rskip.analysis.trace import TraceObserver, read_updates
from rskip.cli.main import main as rskip_main
from rskip.connections.norms import BatchNorm
from rskip.machine.ranks import Ranks
from rskip.tasks.training import Interrupted, Observer
from rskip.vision.data import ImageSet, TrainingBatches
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

LOOP = sys.modules["rskip.vision.training"]  # the package's `train` is the function
SETTINGS: dict[str, Any] = {
    "depth": 8, "batch_size": 16, "iterations": 11, "milestones": (), "channels_last": False, "save_every": 100
}  # fmt: skip
CONNECTIONS = ("1xskip", "2rskip+ln")


def load_noise(name: str, root: object, *, train: bool, download: bool = False) -> ImageSet:
    """An epoch has batches of 16, 16 and 5: of the last one a process has three images, the other two."""
    return noise(37 if train else 20)


def load_damaged(name: str, root: object, *, train: bool, download: bool = False) -> ImageSet:
    raise ValueError("a file of this machine is cut")


def fixed_statistics(norm: BatchNorm, z: Tensor) -> Tensor:
    """Batch normalisation that doesn't depend on which images are in this process's part of the batch."""
    return F.batch_norm(z, norm.running_mean, norm.running_var, norm.weight, norm.bias)


class DoubleBatches(TrainingBatches):
    """The batches in float64."""

    def batch(self, iteration: int) -> tuple[Tensor, Tensor, int]:
        pixels, labels, count = super().batch(iteration)
        return pixels.double(), labels, count


def prepare(patch: pytest.MonkeyPatch) -> None:
    """Synthetic images; parameters and images in float64, so that only a mistake makes a difference."""
    patch.setattr(LOOP, "load_dataset", load_noise)
    patch.setattr(BatchNorm, "forward", fixed_statistics)
    patch.setattr(LOOP, "TrainingBatches", DoubleBatches)
    patch.setattr(LOOP, "evaluate", lambda *_, **__: SimpleNamespace(loss=0.0, error=0.0))
    torch.set_default_dtype(torch.float64)


def run(folder: Path, connection: str = "1xskip", observer: Observer | None = None, **changes: Any) -> None:
    """Trains; of what ends it an error is printed by the process that reports it, and the others go on silently."""
    settings = TrainingSettings(**{**SETTINGS, **changes}, connection=connection)
    try:
        train(settings, folder=folder, seed=5, device="cpu", observer=observer)
    except (Interrupted, ValueError) as error:
        print(f"{folder.name}: {error}", file=sys.stderr, flush=True)
    except SystemExit as left:
        assert left.code


def main(folder: Path) -> None:
    """This file as a program."""
    patch = pytest.MonkeyPatch()
    prepare(patch)
    patch.setattr("rskip.machine.ranks._REPORTING_SECONDS", 0)  # nobody ends the others here
    distributed.init_process_group("gloo")
    for connection in CONNECTIONS:
        observer = TraceObserver(folder / f"{connection}.jsonl", every=5, writes=distributed.get_rank() == 0)
        run(folder / connection, connection, observer)

    step, last = TrainingRun.step, distributed.get_rank() == 1

    def stepping(self: TrainingRun) -> None:
        if self.iteration == 7 and last:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self)

    with patch.context() as context:
        context.setattr(TrainingRun, "step", stepping)
        run(folder / "stopped")
    run(folder / "stopped")

    run(folder / ("elsewhere" if last else "1xskip"))  # as on machines that share no folder
    run(folder / "uneven", batch_size=12)  # 37 = 3 * 12 + 1
    run(folder / "synced", sync_batch_norm=True)
    with patch.context() as context:
        context.setattr(LOOP, "load_dataset", load_damaged if last else load_noise)
        run(folder / "damaged")
    for arguments in (("--depth", "21"), ("--seed", "-1"), ("--device", "cuda:0", "--precision", "float32")):
        try:
            assert rskip_main(["vision", "train", *arguments, "--output", str(folder / "out")]) == 2
        except SystemExit as left:
            assert left.code == 2


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training of each connection in one process."""
    folder = tmp_path_factory.mktemp("one")
    try:
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch)
            for connection in CONNECTIONS:
                run(folder / connection, connection)
    finally:
        torch.set_default_dtype(torch.float32)
    return folder


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, forked: Callable[..., subprocess.CompletedProcess[str]]
) -> tuple[Path, str]:
    """The folder of `main` in two processes, and what they printed on stderr."""
    folder = tmp_path_factory.mktemp("two")
    process = forked(__file__, str(folder), folder=folder, fairseq=False, ranks=2)
    assert process.returncode == 0, process.stderr
    return folder, process.stderr


def largest_difference(one: Path, other: Path) -> float:
    """Between two trainings' last iterates, over all parameters and buffers."""
    ours, theirs = (load_file(each / "model.safetensors") for each in (one, other))
    assert list(ours) == list(theirs)
    return max(float((ours[name].double() - tensor.double()).abs().max()) for name, tensor in theirs.items())


@pytest.mark.slow
def test_two_processes_train_as_one(one, two):
    folder, errors = two
    for connection in CONNECTIONS:
        assert largest_difference(folder / connection, one / connection) < 1e-9
        points, expected = (read_curve(each / connection / "curve.jsonl") for each in (folder, one))
        assert [(point.epoch, point.iteration) for point in points] == [(1, 3), (2, 6), (3, 9), (4, 11)]
        for point, other in zip(points, expected, strict=True):
            assert point.train_loss == pytest.approx(other.train_loss, rel=1e-9)
            assert point.train_error == other.train_error
        assert [each["update"] for each in read_updates(folder / f"{connection}.jsonl")] == [1, 5, 10]
    assert errors.count("epoch 4/4") == len(CONNECTIONS) + 1  # the first process alone prints


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_and_they_go_on(one, two, monkeypatch):
    folder, errors = two
    assert errors.count("stopped by SIGTERM after 8 iterations") == 1
    checkpoint = torch.load(folder / "stopped" / "checkpoint.pt", weights_only=True)
    assert [session["from"] for session in checkpoint["sessions"]] == [0, 8]
    assert largest_difference(folder / "stopped", one / "1xskip") < 1e-9
    losses, expected = (
        [point.train_loss for point in read_curve(each)]
        for each in (folder / "stopped/curve.jsonl", one / "1xskip/curve.jsonl")
    )
    assert losses == pytest.approx(expected, rel=1e-9)
    monkeypatch.setattr(LOOP, "load_dataset", load_noise)
    with pytest.raises(ValueError, match="processes: 2, now 1"):
        train(TrainingSettings(**SETTINGS), folder=folder / "stopped", seed=5, device="cpu")


@pytest.mark.slow
def test_a_mistake_is_reported_once_and_before_work(two):
    folder, errors = two
    for line in (
        "one process finds iteration 0, another 11: use a folder that",
        "uneven: an epoch's last batch has 1 images for 2 processes",
        "damaged: a file of this machine is cut",
        "synced: sync_batch_norm is true for 2 processes on a CPU: expected GPUs; leave it out, or train in one",
        "rskip vision train: error: --depth is 21: expected 6n+2",
        "rskip vision train: error: the seed is -1: expected 0 to",
        "rskip vision train: error: device is 'cuda:0': expected cpu, cuda; each process",
    ):
        assert errors.count(line) == 1, errors
    assert errors.count("error: ") == 3 and "Traceback" not in errors


def test_on_gpus_batch_norm_is_pytorchs_synchronised_one(tmp_path):
    options = {"files": TrainingFolder(tmp_path), "seed": 5, "device": torch.device("cpu"), "ranks": Ranks(0, 2)}
    runs = [
        image_training(Start(settings=settings, **options), noise(37), noise(20))
        for synced in (False, True)
        for settings in [TrainingSettings(**{**SETTINGS, "connection": "2rskip+bn", "sync_batch_norm": synced})]
    ]
    kinds = [{type(each) for each in run.model.modules() if "Norm" in type(each).__name__} for run in runs]
    assert kinds == [{BatchNorm}, {nn.SyncBatchNorm}]
    states = [run.model.state_dict() for run in runs]
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
