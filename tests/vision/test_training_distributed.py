"""Two processes of torchrun train as one process does; batch normalisation over both of them.

As a program, under torchrun, this file trains on synthetic images: FOLDER SETTINGS SIGNAL ITERATION; the last process
sends itself the signal.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from torch import nn

from rskip.connections.norms import BatchNorm
from rskip.vision.data import ImageSet, TrainingBatches
from rskip.vision.training import Interrupted, TrainingSettings, read_curve, train
from rskip.vision.training.sync_batch_norm import SyncBatchNorm, with_sync_batch_norm

LOOP = sys.modules["rskip.vision.training.train"]
RUN = sys.modules["rskip.vision.training.training_run"]
SETTINGS = {
    "depth": 8,
    "batch_size": 16,
    "iterations": 20,
    "milestones": [],
    "warmup_lr": 0.001,  # at higher ones 20 steps blow float32's rounding up to more than 1e-4, on one process too
    "channels_last": False,
    "sync_batch_norm": True,
    "save_every": 100,
}
CONNECTIONS = ("1xskip", "2rskip+ln", "2rskip+bn")


def use_noise() -> None:
    """An epoch has batches of 16, 16 and 5: of the last one a process has three images, the other two."""

    def load(name: str, root: object, *, train: bool) -> ImageSet:
        count = 37 if train else 20
        generator = torch.Generator().manual_seed(count)
        images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
        labels = torch.randint(10, (count,), generator=generator)
        return ImageSet(images=images, labels=labels, classes=tuple("abcdefghij"))

    LOOP.load_cifar = load


def use_float64() -> None:
    """Parameters and images in float64; no test error, which is for float32."""
    torch.set_default_dtype(torch.float64)
    RUN.TrainingBatches = functools.partial(TrainingBatches, dtype=torch.float64)
    RUN.evaluate = lambda *_, **__: SimpleNamespace(loss=0.0, error=0.0)


def main(folder: str, settings: str, number: str, iteration: str) -> None:
    """This file as a program."""
    use_noise()
    step = RUN.TrainingRun.step

    def stepping(self: Any) -> None:
        if self.iteration == int(iteration) and self.ranks.rank == self.ranks.count - 1:
            os.kill(os.getpid(), int(number))
        step(self)

    RUN.TrainingRun.step = stepping
    values = json.loads(settings)
    connections = values.pop("connections", ["1xskip"])
    if values.pop("float64", False):
        use_float64()
    if len(connections) > 1 and "RANK" in os.environ:
        distributed.init_process_group("gloo")
    try:
        for connection in connections:
            where = Path(folder, connection) if len(connections) > 1 else Path(folder)
            train(TrainingSettings(**values, connection=connection), folder=where, seed=5, device="cpu")
    except (Interrupted, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(error.status if isinstance(error, Interrupted) else 2)


def in_processes(
    count: int, folder: Path, environment: Callable, *, number: int = 0, iteration: int = -1, **changes: Any
) -> subprocess.CompletedProcess[str]:
    """Trains under torchrun, or without it where count is 1."""
    torchrun = str(Path(sys.executable).parent / "torchrun")
    launcher = [torchrun, "--standalone", "--nproc-per-node", str(count)] if count > 1 else [sys.executable]
    arguments = [__file__, str(folder), json.dumps({**SETTINGS, **changes}), str(int(number)), str(iteration)]
    command = [*launcher, *arguments]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.terminate()  # torchrun ends its processes
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def largest_difference(one: Path, other: Path) -> float:
    """Between two trainings' last iterates, over all parameters and buffers."""
    ours, theirs = (torch.load(each / "model.pt", weights_only=True)["model"] for each in (one, other))
    assert list(ours) == list(theirs)
    return max(float((ours[name].double() - tensor.double()).abs().max()) for name, tensor in theirs.items())


@pytest.fixture(scope="module")
def by_one_process(tmp_path_factory: pytest.TempPathFactory, environment: Callable) -> Path:
    """A folder with a training of each connection."""
    folder = tmp_path_factory.mktemp("one")
    process = in_processes(1, folder, environment, connections=CONNECTIONS)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.slow
def test_two_processes_train_as_one(by_one_process, tmp_path, environment):
    process = in_processes(2, tmp_path, environment, connections=CONNECTIONS)
    assert process.returncode == 0, process.stderr
    for connection in CONNECTIONS:
        one, two = by_one_process / connection, tmp_path / connection
        assert largest_difference(two, one) < 1e-4
        points, expected = (read_curve(each / "curve.jsonl") for each in (two, one))
        for point, other in zip(points, expected, strict=True):
            assert point.train_loss == pytest.approx(other.train_loss, abs=1e-4)
            assert point.test_loss == pytest.approx(other.test_loss, abs=1e-3)
    assert process.stderr.count("epoch 1/7") == len(CONNECTIONS)  # the first process alone prints


@pytest.mark.slow
def test_in_float64_they_train_as_one_at_the_full_learning_rate(tmp_path, environment):
    for count in (1, 2):
        process = in_processes(
            count, tmp_path / str(count), environment, connections=CONNECTIONS, float64=True, warmup_iterations=4
        )
        assert process.returncode == 0, process.stderr
    for connection in CONNECTIONS:
        assert largest_difference(tmp_path / "1" / connection, tmp_path / "2" / connection) < 1e-9


@pytest.mark.slow
def test_without_common_statistics_they_would_not(by_one_process, tmp_path, environment):
    process = in_processes(2, tmp_path, environment, sync_batch_norm=False)
    assert process.returncode == 0, process.stderr
    assert largest_difference(tmp_path, by_one_process / "1xskip") > 1e-2


@pytest.mark.slow
def test_a_signal_to_one_process_stops_both_and_they_go_on(by_one_process, tmp_path, environment):
    process = in_processes(2, tmp_path, environment, number=signal.SIGTERM, iteration=7)
    assert process.returncode != 0
    assert process.stderr.count("stopped by SIGTERM after 8 iterations") == 1
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["iteration"] == 8
    one = in_processes(1, tmp_path, environment)
    assert one.returncode == 2
    assert "processes: 2 there, 1 now" in one.stderr and one.stderr.count("\n") == 1
    process = in_processes(2, tmp_path, environment)
    assert process.returncode == 0, process.stderr
    assert largest_difference(tmp_path, by_one_process / "1xskip") < 1e-4


@pytest.mark.slow
def test_a_mistake_is_told_once(tmp_path, environment):
    process = in_processes(2, tmp_path, environment, batch_size=12)  # 37 = 3 * 12 + 1
    assert process.returncode != 0
    assert process.stderr.count("an epoch's last batch has 1 images for 2 processes") == 1
    assert "ValueError" not in process.stderr


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, BatchNorm])
def test_batch_norm_of_one_process_is_pytorchs(kind, alone):
    torch.manual_seed(0)
    theirs = kind(3).double()
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    reference = nn.BatchNorm2d(3).double()
    reference.load_state_dict(theirs.state_dict())
    ours = with_sync_batch_norm(nn.Sequential(theirs), torch.device("cpu"))[0]
    assert isinstance(ours, SyncBatchNorm) and ours.weight is theirs.weight
    for _ in range(2):
        z = (5 + 2 * torch.randn(4, 3, 5, 5, dtype=torch.float64)).requires_grad_()
        other = z.detach().clone().requires_grad_()
        g = torch.randn(4, 3, 5, 5, dtype=torch.float64)
        ours(z).backward(g)
        reference(other).backward(g)
        torch.testing.assert_close(z.grad, other.grad)
    torch.testing.assert_close(ours.weight.grad, reference.weight.grad)
    torch.testing.assert_close(ours.bias.grad, reference.bias.grad)
    assert list(ours.state_dict()) == list(reference.state_dict())
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor)
    torch.testing.assert_close(ours.eval()(z), reference.eval()(z))


def test_gradients_of_batch_norm(alone):
    torch.manual_seed(0)
    norm = SyncBatchNorm(nn.BatchNorm2d(2).double())
    z = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)

    def function(z: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (z,))

    assert torch.autograd.gradcheck(function, (z, norm.weight, norm.bias))


if __name__ == "__main__":
    main(*sys.argv[1:])
