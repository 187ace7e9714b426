"""Checkpoints; resumed trainings give the same result as uninterrupted ones; folders that can't be resumed."""

from __future__ import annotations

import dataclasses
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.files.folder_lock import LockLost
from rskip.machine.ranks import Ranks
from rskip.tasks.training import Interrupted, stop_signals
from rskip.vision.training import Diverged, Start, TrainingFolder, TrainingSettings, read_curve, train
from tests.vision.conftest import noise

LOOP = sys.modules["rskip.vision.training"]  # the package's `train` is the function
SETTINGS = {
    "depth": 8, "connection": "2rskip+ln", "batch_size": 8, "iterations": 11, "warmup_iterations": 2,
    "milestones": [9], "save_every": 4,
}  # fmt: skip


def load_noise(name: str, root: object, *, train: bool, download: bool) -> Any:
    """An epoch has batches of 8, 8 and 4."""
    return noise(20 if train else 15)


@pytest.fixture(autouse=True)
def synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOP, "load_dataset", load_noise)


def signal_at(iteration: int, number: int) -> None:
    """Makes the process send itself a signal in this iteration."""
    step = LOOP.TrainingRun.step

    def stepping(self: Any) -> None:
        if self.iteration == iteration:
            os.kill(os.getpid(), number)
        step(self)

    LOOP.TrainingRun.step = stepping


def run(folder: Path, *, seed: int = 5, **changes: Any) -> None:
    """Trains or resumes, to the end."""
    train(TrainingSettings(**{**SETTINGS, **changes}), folder=folder, seed=seed, device="cpu")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOOP, "load_dataset", load_noise)
        run(folder)
    return folder


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Path]:
    """Gives the folder of a training that got a signal in an iteration."""

    def stop(iteration: int, number: int = signal.SIGTERM, **changes: Any) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr(LOOP.TrainingRun, "step", LOOP.TrainingRun.step)  # put back afterwards
            signal_at(iteration, number)
            with pytest.raises(Interrupted) as error:
                run(tmp_path, **changes)
        assert error.value.status == 128 + number
        assert f"after {iteration + 1} iterations" in str(error.value) and "\n" not in str(error.value)
        return tmp_path

    return stop


def content_of(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def assert_same_end(folder: Path, straight: Path, *, iterations: int = 11) -> None:
    """Equal bytes of every tensor, and equal losses."""
    for file in ("model.safetensors", "config.json"):
        assert (folder / file).read_bytes() == (straight / file).read_bytes()
    ours, theirs = (content_of(each) for each in (folder, straight))
    assert ours["iteration"] == theirs["iteration"] == iterations
    assert list(ours["model"]) == list(theirs["model"])
    for name, tensor in theirs["model"].items():
        assert ours["model"][name].numpy().tobytes() == tensor.numpy().tobytes(), name
    for number, state in theirs["optimiser"]["state"].items():
        assert torch.equal(ours["optimiser"]["state"][number]["momentum_buffer"], state["momentum_buffer"])
    assert figures(folder) == figures(straight)


def figures(folder: Path) -> list[tuple[float | None, ...]]:
    """What the curve says but for times."""
    points = map(dataclasses.asdict, read_curve(folder / "curve.jsonl"))
    return [tuple(v for name, v in each.items() if name not in ("seconds", "images_per_second")) for each in points]


@pytest.mark.parametrize(("iteration", "number"), [(0, signal.SIGINT), (4, signal.SIGTERM), (5, signal.SIGTERM)])
def test_a_stopped_training_is_resumed(iteration, number, stopped, straight):
    """In the first iteration, in mid-epoch, and in an epoch's last iteration, whose point is still to come."""
    handler = signal.getsignal(number)
    folder = stopped(iteration, number)
    assert content_of(folder)["iteration"] == iteration + 1
    assert len(read_curve(folder / "curve.jsonl")) == iteration // 3
    assert signal.getsignal(number) is handler
    run(folder)
    assert_same_end(folder, straight)
    sessions = content_of(folder)["sessions"]
    assert [session["from"] for session in sessions] == [0, iteration + 1]
    assert all(point.images_per_second > 0 for point in read_curve(folder / "curve.jsonl"))


def test_a_second_signal_ends_a_process_that_is_alone():
    before = signal.getsignal(signal.SIGINT)
    with stop_signals(Ranks()) as received:
        assert received() == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert received() == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is before
    with stop_signals(Ranks(rank=0, count=2)):
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("iteration", [3, 6, 11])
def test_a_training_that_is_killed_while_it_evaluates_is_resumed(iteration, straight, tmp_path, monkeypatch):
    """Also at the training's end; save_every would have saved 0, 4 and 8."""
    evaluate = LOOP.evaluate
    left = [3, 6, 9, 11].index(iteration)

    def killed(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            raise RuntimeError("killed")
        left -= 1
        return evaluate(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LOOP, "evaluate", killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path)
    assert content_of(tmp_path)["iteration"] == iteration
    with (tmp_path / "curve.jsonl").open("a") as file:
        file.write('{"epoch": 4, "iter')  # as if killed in the middle of a line
    (tmp_path / ".checkpoint.pt.x1y2z3.partial.pt").write_bytes(b"killed in the middle of a file")
    run(tmp_path)
    files = ["checkpoint.pt", "config.json", "curve.jsonl", "model.safetensors", "owner.json", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert [session["from"] for session in content_of(tmp_path)["sessions"]] == [0, iteration]
    assert content_of(tmp_path)["curve"][-1]["iteration"] == 11
    assert_same_end(tmp_path, straight)


def test_a_finished_training_is_left_as_it_is(straight, tmp_path):
    run(tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    (tmp_path / "config.json").unlink()
    (tmp_path / "curve.jsonl").unlink()
    run(tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert_same_end(tmp_path, straight)


def test_a_full_disk_leaves_the_checkpoint_before(stopped, straight, monkeypatch):
    folder = stopped(1)
    before = (folder / "checkpoint.pt").read_bytes()

    def full(path: Path, content: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            run(folder)
    assert error.value.filename == str(folder / "checkpoint.pt")
    assert (folder / "checkpoint.pt").read_bytes() == before
    run(folder)
    assert_same_end(folder, straight)


def test_a_training_that_lost_its_lock_stops_before_it_writes(tmp_path, monkeypatch):
    step = LOOP.TrainingRun.step

    def taken_over(training: Any) -> None:
        if training.iteration == 5:
            (tmp_path / "lock").unlink()
        step(training)

    monkeypatch.setattr(LOOP.TrainingRun, "step", taken_over)
    with pytest.raises(LockLost, match="is gone: this process stops"):
        run(tmp_path)
    assert content_of(tmp_path)["iteration"] == 4, "saved every 4"
    assert not (tmp_path / "config.json").exists()


def test_a_folder_in_use_is_refused(tmp_path):
    with TrainingFolder(tmp_path).lock(), pytest.raises(ValueError, match="in use by another training run"):
        run(tmp_path)


@pytest.fixture
def begun(tmp_path: Path) -> Any:
    """A training of 20 iterations after two of them."""
    settings = TrainingSettings(depth=8, batch_size=8, iterations=20, milestones=())
    start = Start(settings=settings, files=TrainingFolder(tmp_path), seed=1, device=torch.device("cpu"))
    training = LOOP.image_training(start, noise(40), noise(10))
    training.step()
    training.step()
    return training


def test_a_checkpoint_holds_no_memory_of_others_and_the_groups_of_any_device(begun):
    begun.save()
    content = torch.load(begun.files.checkpoint, weights_only=True)
    assert all(each.untyped_storage().nbytes() == each.nbytes for each in content["model"].values())
    ours, theirs = (state["param_groups"] for state in (content["optimiser"], begun.optimiser.state_dict()))
    assert ours == theirs and (ours[0]["lr"], ours[0]["foreach"], ours[0]["fused"]) == (0.01, None, None)


@pytest.mark.parametrize(("value", "diverged"), [(float("nan"), True), (float("-inf"), True), (-3e38, False)])
def test_a_check_finds_what_is_not_finite_and_nothing_else(value, diverged, begun):
    """3e38 is finite though its square isn't."""
    begun.model.layer2[0].bn1.running_var[3] = value
    if diverged:
        with pytest.raises(Diverged, match="a weight or statistic is not finite after 2 iterations"):
            begun.check()
    else:
        begun.check()
