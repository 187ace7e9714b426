"""Resumed trainings give the same result as uninterrupted ones; folders that can't be resumed.

As a program this file trains on synthetic images and kills itself: FOLDER SETTINGS SIGNAL ITERATION.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.connections import list_connections, parse_connection
from rskip.files.folder_lock import LockLost
from rskip.machine.ranks import Ranks
from rskip.tasks.loop import StopSignals
from rskip.vision.data import ImageSet
from rskip.vision.training import Interrupted, TrainingSettings, read_curve, train
from rskip.vision.training.training_folder import TrainingFolder

LOOP = sys.modules["rskip.vision.training.train"]
RUN = sys.modules["rskip.vision.training.training_run"]
SETTINGS = {
    "depth": 8,
    "connection": "2rskip+ln",
    "batch_size": 8,
    "iterations": 11,
    "warmup_iterations": 2,
    "milestones": [9],
    "save_every": 4,
}


def noise(count: int) -> ImageSet:
    """Random images of random classes."""
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (count,), generator=generator)
    return ImageSet(images=images, labels=labels, classes=tuple("abcdefghij"))


def use_noise() -> None:
    """An epoch has batches of 8, 8 and 4."""
    LOOP.load_dataset = lambda name, root, *, train, download: noise(20 if train else 15)


def signal_at(iteration: int, number: int) -> None:
    """Makes the process send itself a signal in this iteration."""
    step = RUN.TrainingRun.step

    def stepping(self: Any) -> None:
        if self.iteration == iteration:
            os.kill(os.getpid(), number)
        step(self)

    RUN.TrainingRun.step = stepping


def main(folder: str, settings: str, number: str, iteration: str) -> None:
    """This file as a program."""
    use_noise()
    signal_at(int(iteration), int(number))
    train(TrainingSettings(**json.loads(settings)), folder=Path(folder), seed=5, device="cpu")


@pytest.fixture(autouse=True)
def synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(20 if train else 15))


def run(folder: Path, *, seed: int = 5, **changes: Any) -> None:
    """Trains or resumes, to the end."""
    train(TrainingSettings(**{**SETTINGS, **changes}), folder=folder, seed=seed, device="cpu")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that was never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(20 if train else 15))
        run(folder)
    return folder


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], Path]:
    """Gives the folder of a training that got a signal in an iteration."""

    def stop(iteration: int, number: int = signal.SIGTERM, **changes: Any) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr(RUN.TrainingRun, "step", RUN.TrainingRun.step)  # put back afterwards
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
    for file in ("checkpoint.pt", "model.pt"):
        ours, theirs = (torch.load(each / file, weights_only=True) for each in (folder, straight))
        assert ours["iteration"] == theirs["iteration"] == iterations
        assert list(ours["model"]) == list(theirs["model"])
        for name, tensor in theirs["model"].items():
            assert ours["model"][name].numpy().tobytes() == tensor.numpy().tobytes(), name
    ours, theirs = (content_of(each) for each in (folder, straight))
    for number, state in theirs["optimiser"]["state"].items():
        assert torch.equal(ours["optimiser"]["state"][number]["momentum_buffer"], state["momentum_buffer"])
    assert torch.equal(ours["rng"]["cpu"], theirs["rng"]["cpu"])
    assert figures(folder) == figures(straight)


def figures(folder: Path) -> list[tuple[float | None, ...]]:
    """What the curve says but for times."""
    points = read_curve(folder / "curve.jsonl")
    return [
        (point.epoch, point.iteration, point.lr, point.train_loss, point.train_error, point.test_loss, point.test_error)
        for point in points
    ]


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
    sessions = content_of(folder)["pieces"]
    assert [session["from"] for session in sessions] == [0, iteration + 1]
    assert content_of(folder)["seconds"] == sum(session["seconds"] for session in sessions)
    assert all(point.images_per_second > 0 for point in read_curve(folder / "curve.jsonl"))


def test_a_training_whose_norms_do_not_decay_is_resumed(stopped, tmp_path_factory):
    changes = {"decay": "weights", "shortcut_input": "activated"}
    run(without_stop := tmp_path_factory.mktemp("without_stop"), **changes)
    folder = stopped(4, **changes)
    with pytest.raises(ValueError, match="shortcut_input: activated, now not set; decay: weights, now not set"):
        run(folder)
    run(folder, **changes)
    assert_same_end(folder, without_stop)


@pytest.mark.slow
def test_connections_of_each_family_are_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(8 if train else 4))
    families = [family for family in list_connections() if family.text_only is not True]
    for family in families:
        norm = None if family.text_only else family.norms[-1]  # one that images take
        text = ("" if family.factor is None else "2") + family.name + ("" if norm is None else f"+{norm}")
        spec = str(parse_connection(text))
        values = {"connection": spec, "batch_size": 4, "iterations": 3, "milestones": []}
        run(tmp_path / spec / "straight", **values)
        with monkeypatch.context() as patch:
            patch.setattr(RUN.TrainingRun, "step", RUN.TrainingRun.step)
            signal_at(0, signal.SIGTERM)
            with pytest.raises(Interrupted):
                run(tmp_path / spec / "stopped", **values)
        run(tmp_path / spec / "stopped", **values)
        assert_same_end(tmp_path / spec / "stopped", tmp_path / spec / "straight", iterations=3)


def test_a_second_signal_ends_a_process_that_is_alone():
    before = signal.getsignal(signal.SIGINT)
    with StopSignals(Ranks()) as signals:
        assert signals.received() == 0
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received() == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is before
    with StopSignals(Ranks(rank=0, count=2)):
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_killed_training_is_resumed(straight, tmp_path, forked):
    """Killed after the checkpoint of an epoch's end, and the point that it was saved before."""
    arguments = (str(tmp_path), json.dumps(SETTINGS), str(int(signal.SIGKILL)), "10")
    process = forked(__file__, *arguments, folder=tmp_path, fairseq=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert content_of(tmp_path)["iteration"] == read_curve(tmp_path / "curve.jsonl")[-1].iteration == 9
    assert [point["iteration"] for point in content_of(tmp_path)["curve"]] == [3, 6]
    with (tmp_path / "curve.jsonl").open("a") as file:
        file.write('{"epoch": 4, "iter')  # killed in the middle of a line
    (tmp_path / ".checkpoint.pt.x1y2z3.partial.pt").write_bytes(b"killed in the middle of a file")
    run(tmp_path)
    files = ["checkpoint.pt", "config.json", "curve.jsonl", "model.pt", "model.safetensors", "owner.json", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert_same_end(tmp_path, straight)


@pytest.mark.parametrize("iteration", [3, 6, 11])
def test_a_training_that_is_killed_while_it_evaluates_is_resumed(iteration, straight, tmp_path, monkeypatch):
    """Also at the training's end; save_every would have saved 0, 4 and 8."""
    evaluate = RUN.evaluate
    left = [3, 6, 9, 11].index(iteration)

    def killed(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            raise RuntimeError("killed")
        left -= 1
        return evaluate(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(RUN, "evaluate", killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path)
    assert content_of(tmp_path)["iteration"] == iteration
    run(tmp_path)
    assert [session["from"] for session in content_of(tmp_path)["pieces"]] == [0, iteration]
    assert content_of(tmp_path)["curve"][-1]["iteration"] == 11
    assert_same_end(tmp_path, straight)


def test_a_finished_training_is_left_as_it_is(straight, tmp_path):
    run(tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    (tmp_path / "model.pt").unlink()
    (tmp_path / "curve.jsonl").unlink()
    run(tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert_same_end(tmp_path, straight)


def test_a_training_of_other_settings_is_named(stopped):
    folder = stopped(3)
    before = (folder / "checkpoint.pt").read_bytes()
    with pytest.raises(ValueError) as error:
        run(folder, seed=6, depth=14, connection="1xskip")
    message = str(error.value)
    assert "depth: 8, now 14; connection: 2rskip+ln, now 1xskip; seed: 5, now 6" in message
    assert str(folder / "checkpoint.pt") in message and "\n" not in message
    assert (folder / "checkpoint.pt").read_bytes() == before


def test_a_damaged_or_foreign_checkpoint_is_refused(stopped):
    path = stopped(3) / "checkpoint.pt"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a checkpoint", {"model": {}}, [1, 2]):
        path.write_bytes(damaged) if isinstance(damaged, bytes) else torch.save(damaged, path)
        before = path.read_bytes()
        with pytest.raises(ValueError) as error:
            run(path.parent)
        message = str(error.value)
        assert message.startswith((f"{path} can't be read", f"{path}: settings is missing", f"{path} is not a "))
        assert "\n" not in message
        assert message.endswith("; move it away to start again")
        assert path.read_bytes() == before


WRONG_CHECKPOINTS: list[tuple[tuple[Any, ...], Any, str]] = [
    (("model", "fc.bias"), None, "model.fc.bias is None: expected a Tensor"),
    (("model", "fc.bias"), torch.ones(9), "(fc.bias has the shape (9,), expected (10,))"),
    (("model", "fc.bias"), torch.full((10,), float("nan")), "(fc.bias is not finite)"),
    (("model", "fc.bias"), torch.ones(10).double(), "(fc.bias is torch.float64, expected torch.float32)"),
    (("model", "more"), torch.ones(1), "(the file has more too)"),
    (("optimiser",), {"param_groups": []}, "optimiser.state is missing"),
    (("optimiser", "state", 0), {}, "optimiser.state.0.momentum_buffer is missing: expected a Tensor"),
    (("optimiser", "state", 0, "momentum_buffer"), torch.full((16, 3, 3, 3), float("inf")),
     "(momentum of conv1.weight is not finite)"),
    (("optimiser", "state", 0, "momentum_buffer"), torch.ones(3), "(momentum of conv1.weight has the shape (3,), "),
    (("optimiser", "state", 999), {"momentum_buffer": torch.ones(3)}, "(the file has momentum of 999 too)"),
    (("optimiser", "state"), {}, "(the file has no momentum of bn"),
    (("optimiser", "param_groups", 0, "params"), [0], "(the optimiser has other parameters)"),
    (("iteration",), "4", "iteration is '4': expected a whole number, 0 or more"),
    (("iteration",), 99, "(99 iterations are done, expected 11 at most)"),
    (("iterations",), 12, "(its training has 12 iterations, expected 11)"),
    (("curve", 0), {"epoch": 1}, "curve[0].iteration is missing: expected a whole number, 1 or more"),
    (("curve", 0, "iteration"), 9, "(the curve's iterations don't increase up to 4)"),
    (("curve", 0, "train_loss"), "2.3", "curve[0].train_loss is '2.3': expected a number"),
    (("curve",), None, "curve is None: expected a list of keys and values"),
    (("rng", "cpu"), torch.zeros(3, dtype=torch.uint8), "(rng: "),
    (("rng", "cpu"), torch.zeros(5056), "(rng: "),
    (("rng",), {}, "rng.cpu is missing: expected a Tensor"),
    (("meter", "images"), 1.5, "meter.images is 1.5: expected a whole number, 0 or more"),
    (("meter", "loss"), float("nan"), "meter.loss is nan: expected a number"),
    (("pieces", 0, "seconds"), "x", "pieces[0].seconds is 'x': expected a number"),
    (("seconds",), [1], "seconds is [1]: expected a number"),
    (("settings",), 3, "settings is 3: expected keys and values"),
    (("more",), 3, "unknown key more"),
]  # fmt: skip


def test_a_checkpoint_that_is_not_of_its_training_is_refused(stopped):
    """In the past, one such checkpoint trained on to a model that is not finite."""
    path = stopped(3) / "checkpoint.pt"
    whole = path.read_bytes()
    curve = (path.parent / "curve.jsonl").read_bytes()
    for keys, value, said in WRONG_CHECKPOINTS:
        path.write_bytes(whole)
        inner = content = torch.load(path, weights_only=True)
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        torch.save(content, path)
        with pytest.raises(ValueError) as error:
            run(path.parent)
        message = str(error.value)
        assert message.startswith(str(path)) and said in message, (keys, message)
        assert message.endswith("; move it away to start again") and "\n" not in message, (keys, message)
        assert (path.parent / "curve.jsonl").read_bytes() == curve
        assert sorted(each.name for each in path.parent.glob("*.pt")) == ["checkpoint.pt"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A block in which no file may grow larger, in bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("size", "name", "advice", "left"),
    [
        (0, "lock", "free some space and repeat the command", []),
        (500, "run.json", "free some space and repeat the command", ["owner.json"]),
        (100_000, "checkpoint.pt", "no earlier checkpoint: free some", ["curve.jsonl", "owner.json", "run.json"]),
    ],
)
def test_no_room_for_a_first_file(size, name, advice, left, tmp_path):
    with pytest.raises(OSError) as error, files_of_at_most(size):
        run(tmp_path)
    assert error.value.errno == errno.EFBIG and error.value.filename == str(tmp_path / name)
    assert "File too large; " in str(error.value) and advice in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_no_room_leaves_the_checkpoint_before(stopped, straight, monkeypatch):
    folder = stopped(1)
    before = (folder / "checkpoint.pt").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", lambda path, content: full(0))
        with pytest.raises(OSError, match="No space left on device; the previous checkpoint is kept") as error:
            run(folder)
    assert error.value.filename == str(folder / "checkpoint.pt")
    assert (folder / "checkpoint.pt").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.pt", "curve.jsonl", "owner.json", "run.json"]
    run(folder)
    assert_same_end(folder, straight)


def test_a_folder_in_use_is_refused(tmp_path):
    with TrainingFolder(tmp_path).lock(), pytest.raises(ValueError) as error:
        run(tmp_path)
    assert f"in use by another training run (process {os.getpid()}): wait for it" in str(error.value)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["owner.json"]


def test_a_training_that_lost_its_lock_stops_before_it_writes(tmp_path, monkeypatch):
    step = RUN.TrainingRun.step

    def taken_over(training: Any) -> None:
        if training.iteration == 5:
            (tmp_path / "lock").unlink()
        step(training)

    monkeypatch.setattr(RUN.TrainingRun, "step", taken_over)
    with pytest.raises(LockLost, match="is gone: this process stops"):
        run(tmp_path)
    assert content_of(tmp_path)["iteration"] == 4, "saved every 4"
    assert not (tmp_path / "model.pt").exists()


if __name__ == "__main__":
    main(*sys.argv[1:])
