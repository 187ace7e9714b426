"""Iterations repeated as a graph compute what they compute one by one, by a graph that a CPU can record."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rskip.machine.ranks import Ranks
from rskip.vision.data import ImageSet
from rskip.vision.training import Interrupted, TrainingSettings, cuda_graph, read_curve, train
from rskip.vision.training.training_run import TrainingRun

aten = torch.ops.aten
WAITS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default)
LOOP = sys.modules["rskip.vision.training.train"]
SETTINGS: dict[str, Any] = {
    "depth": 8,
    "batch_size": 4,
    "schedule": "one_cycle",  # another learning rate in each iteration
    "iterations": 11,
    "clip_norm": 1.0,
    "nesterov": True,
    "label_smoothing": 0.1,
}


class RecordedGraph(TorchDispatchMode):
    """A CUDA graph's rules on a CPU: what `work` computes, computed again on the same tensors by
    every `replay`.

    What Python knew is frozen, as in a CUDA graph: a number that went into a call, which branch was taken, which tensor
    was read. Unlike a capture the recording computes; so the first replay does nothing. A call that would wait for the
    device is an AssertionError.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self._done = True
        with self:
            work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in WAITS, f"{func} waits for the device"
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, _tensors(result)))
        return result

    def replay(self) -> None:
        if self._done:
            self._done = False
            return
        with torch.no_grad():
            for func, args, kwargs, results in self._calls:
                for kept, found in zip(results, _tensors(func(*args, **kwargs)), strict=True):
                    if kept.data_ptr() != found.data_ptr():  # not a view, nor computed in place
                        kept.copy_(found)


def _tensors(result: Any) -> list[Tensor]:
    return [each for each in tree_leaves(result) if isinstance(each, Tensor)]


def noise(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(10, (count,), generator=generator), tuple("abcdefghij"))


class Repeated:
    """No graph: computes the work whenever it is asked to."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Graphs are recorded on the CPU; gives them. An epoch has batches of 4, 4 and 2 images."""
    monkeypatch.setattr(LOOP, "load_cifar", lambda name, root, *, train, download: noise(10 if train else 8))
    monkeypatch.setattr(LOOP, "_check_device", lambda *_: None)
    monkeypatch.setattr(cuda_graph, "WARM_UP", 1)
    graphs: list[RecordedGraph] = []

    def record(work: Callable[[], None]) -> RecordedGraph:
        graphs.append(RecordedGraph(work))
        return graphs[-1]

    monkeypatch.setattr(cuda_graph, "capture", record)
    return graphs


def run(folder: Path, **changes: Any) -> None:
    settings = TrainingSettings(**{**SETTINGS, "cuda_graph": True, **changes})
    train(settings, folder=folder, seed=3, device="cpu")


def end_of(folder: Path) -> tuple[dict[str, torch.Tensor], list[tuple[float | None, ...]]]:
    """The last iterate, and the curve's losses and errors."""
    points = read_curve(folder / "curve.jsonl")
    figures = [(point.lr, point.train_loss, point.train_error, point.test_loss, point.test_error) for point in points]
    return torch.load(folder / "model.pt", weights_only=True)["model"], figures


def assert_same_end(folder: Path, other: Path) -> None:
    (ours, our_figures), (theirs, their_figures) = end_of(folder), end_of(other)
    assert our_figures == their_figures
    for name, tensor in theirs.items():
        assert ours[name].numpy().tobytes() == tensor.numpy().tobytes(), name


@pytest.mark.parametrize(("connection", "precision"), [("2rskip+bn", "bfloat16"), ("sas", "float32")])
def test_a_replayed_iteration_is_the_iteration(connection, precision, on_a_cpu, tmp_path, monkeypatch):
    """Bit for bit: parameters, statistics, counts, the meter's sums, at every learning rate, in both sizes of batch."""
    values = {"connection": connection, "precision": precision}
    run(tmp_path / "recorded", **values)
    assert len(on_a_cpu) == 2
    monkeypatch.setattr(cuda_graph, "capture", Repeated)
    run(tmp_path / "repeated", **values)
    assert_same_end(tmp_path / "recorded", tmp_path / "repeated")


def test_without_a_graph_the_training_is_the_same_but_for_rounding(tmp_path):
    """The update is fused, and reads the learning rate from a tensor."""
    run(tmp_path / "recorded", iterations=8)
    run(tmp_path / "plain", iterations=8, cuda_graph=False)
    (ours, _), (theirs, _) = end_of(tmp_path / "recorded"), end_of(tmp_path / "plain")
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_stopped_training_is_resumed(on_a_cpu, tmp_path, monkeypatch):
    run(tmp_path / "straight", connection="2rskip+ln")
    step = TrainingRun.step

    def stopping(self: TrainingRun) -> None:
        if self.iteration == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        step(self)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(TrainingRun, "step", stopping)
        run(tmp_path / "stopped", connection="2rskip+ln")
    (group,) = torch.load(tmp_path / "stopped" / "checkpoint.pt", weights_only=True)["optimiser"]["param_groups"]
    assert isinstance(group["lr"], float) and (group["foreach"], group["fused"]) == (None, None)
    run(tmp_path / "stopped", connection="2rskip+ln")
    assert len(on_a_cpu) == 2 + 2 + 1
    assert_same_end(tmp_path / "stopped", tmp_path / "straight")


def test_a_number_that_python_knew_would_be_frozen():
    """What the recorded graph is for: it tells a tensor that is filled from a number."""
    total, rate, steps = torch.zeros(()), torch.ones(()), 1.0

    def work() -> None:
        total.add_(rate)
        total.add_(steps)

    graph = RecordedGraph(work)
    graph.replay()
    assert total == 2
    rate.fill_(10)
    steps = 100.0
    graph.replay()
    assert total == 2 + 10 + 1
    with pytest.raises(AssertionError, match="waits for the device"):
        RecordedGraph(lambda: None if total > 3 else None)


def test_only_one_process_on_a_gpu_has_graphs(monkeypatch, tmp_path):
    monkeypatch.undo()
    settings = TrainingSettings(**SETTINGS, cuda_graph=True)
    with pytest.raises(ValueError) as error:
        train(settings, folder=tmp_path / "out", seed=1, device="cpu")
    assert str(error.value) == "cuda_graph is true on cpu: expected one process on a GPU; leave it out"
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(LOOP, "device_name", lambda place: "NVIDIA A100")
    with pytest.raises(ValueError, match="^cuda_graph is true on NVIDIA A100 for 2 processes: expected one process"):
        LOOP._check_device(settings, torch.device("cuda", 0), Ranks(rank=0, count=2))


def test_a_gpu_without_bfloat16_is_named(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(LOOP, "device_name", lambda place: "Tesla V100")
    monkeypatch.setattr(LOOP, "bfloat16_is_slow", lambda place: place.index == 1)
    settings, ranks = TrainingSettings(precision="bfloat16"), Ranks(rank=1, count=2, local_rank=1)
    LOOP._check_device(settings, torch.device("cuda", 0), ranks)
    with pytest.raises(ValueError) as error:
        LOOP._check_device(settings, torch.device("cuda", 1), ranks)
    assert str(error.value) == (
        "precision is 'bfloat16' and cuda:1 is a Tesla V100, which has none: expected float32; "
        "or hide this GPU by CUDA_VISIBLE_DEVICES"
    )
