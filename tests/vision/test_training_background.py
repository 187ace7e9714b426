"""Checkpoints are copied at once and written while the training goes on; what is on the disk is whole."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.machine.ranks import Ranks
from rskip.vision.data import ImageSet
from rskip.vision.training import Diverged, TrainingFolder, TrainingSettings
from rskip.vision.training.background import BackgroundWriter, Snapshot
from rskip.vision.training.training_run import TrainingRun

RUN = sys.modules["rskip.vision.training.training_run"]


def noise(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images, torch.randint(10, (count,), generator=generator), tuple("abcdefghij"))


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    """A training of batches of 8 images, 5 an epoch."""
    return TrainingRun(
        TrainingSettings(depth=8, batch_size=8, iterations=20, milestones=()),
        images=noise(40), test_images=noise(10), files=TrainingFolder(tmp_path), seed=1, device=torch.device("cpu"),
        ranks=Ranks(),
    )  # fmt: skip


def test_a_snapshot_has_every_tensor_in_its_layout_whatever_happens_to_it_afterwards():
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "weight": torch.randn(4, 3, 3, 3, generator=generator).to(memory_format=torch.channels_last),
        "count": torch.tensor(7),
        ("momentum", 0): torch.randn(5, 2, generator=generator),
        "part": torch.randn(6, 4, generator=generator)[1:3, ::2],  # of another tensor's memory, with gaps
        "half": torch.randn(3, generator=generator).bfloat16(),
    }
    expected = {name: tensor.clone() for name, tensor in tensors.items()}
    snapshot = Snapshot(tensors)
    for tensor in tensors.values():
        tensor.zero_()
    found = snapshot.arrived()
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype
        assert found[name].untyped_storage().nbytes() == tensor.numel() * tensor.element_size()  # what a file takes
    assert found["weight"].stride() == expected["weight"].stride()


def test_a_writer_does_one_thing_at_a_time_and_raises_its_error_once():
    writer, done, begin = BackgroundWriter(), [], threading.Event()

    def first() -> None:
        begin.wait()
        done.append("first")

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer.start(first)
    assert not done
    begin.set()
    writer.start(full)
    assert done == ["first"]
    with pytest.raises(OSError, match="No space left"):
        writer.start(lambda: done.append("never"))
    writer.wait()
    writer.start(lambda: done.append("second"))
    writer.close()
    assert done == ["first", "second"]


def test_the_training_goes_on_while_its_state_of_before_is_written(run, monkeypatch):
    write, held = RUN.write_checkpoint, threading.Event()

    def slowly(path: Path, checkpoint: Any) -> None:
        held.wait()
        write(path, checkpoint)

    for _ in range(2):
        run.step()
    run.save()
    run.wait()
    before = run.files.checkpoint.read_bytes()
    expected = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    momentum = run.optimiser.state_dict()["state"][0]["momentum_buffer"].clone()
    monkeypatch.setattr(RUN, "write_checkpoint", slowly)
    run.save()
    for _ in range(2):
        run.step()
    assert run.files.checkpoint.read_bytes() == before  # a kill here would leave this one
    held.set()
    run.wait()
    content = torch.load(run.files.checkpoint, weights_only=True)
    assert content["iteration"] == 2 and not torch.equal(run.model.conv1.weight, expected["conv1.weight"])
    assert all(torch.equal(content["model"][name], tensor) for name, tensor in expected.items())
    assert torch.equal(content["optimiser"]["state"][0]["momentum_buffer"], momentum)


def test_the_curve_has_no_point_after_the_checkpoint(run, monkeypatch):
    """An epoch's point is written when its checkpoint is."""
    write, order = RUN.write_checkpoint, []
    evaluated = threading.Event()

    def slowly(path: Path, checkpoint: Any) -> None:
        evaluated.wait()
        write(path, checkpoint)
        order.append("checkpoint")

    def evaluate(*arguments: Any, **options: Any) -> Any:
        evaluated.set()
        return evaluate_images(*arguments, **options)

    evaluate_images, append = RUN.evaluate, run.curve.append
    monkeypatch.setattr(RUN, "write_checkpoint", slowly)
    monkeypatch.setattr(RUN, "evaluate", evaluate)
    monkeypatch.setattr(run.curve, "append", lambda point: (order.append("point"), append(point)))
    for _ in range(5):
        run.step()
    assert run.save_due and run.point_due
    run.save()
    run.add_point()
    assert order == ["checkpoint", "point"]


def test_a_checkpoint_is_what_torch_save_makes_of_the_state(run):
    """No tensor drags the memory of others along, and the optimiser's groups are as on any device."""
    for _ in range(2):
        run.step()
    run.save()
    run.wait()
    content = torch.load(run.files.checkpoint, weights_only=True)
    files = [io.BytesIO(), io.BytesIO()]
    torch.save({name: tensor.contiguous() for name, tensor in run.model.state_dict().items()}, files[0])
    torch.save(content["model"], files[1])
    assert files[0].getvalue() == files[1].getvalue()
    ours, theirs = (state["param_groups"] for state in (content["optimiser"], run.optimiser.state_dict()))
    assert ours == theirs and (ours[0]["lr"], ours[0]["foreach"], ours[0]["fused"]) == (0.01, None, None)


@pytest.mark.parametrize(("value", "diverged"), [(float("nan"), True), (float("-inf"), True), (-3e38, False)])
def test_a_check_finds_what_is_not_finite_and_nothing_else(value, diverged, run):
    """3e38 is finite though its square isn't."""
    run.model.layer2[0].bn1.running_var[3] = value
    if diverged:
        with pytest.raises(Diverged, match="a weight or statistic is not finite after 0 iterations"):
            run.check()
    else:
        run.check()


def test_memory_that_is_not_enough_is_one_line_with_what_to_lower(run, monkeypatch):
    for _ in range(3):
        run.step()
    run.save()

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...\nmore")

    monkeypatch.setattr(run, "_loss", full)
    with pytest.raises(ValueError) as error:
        run.step()
    assert str(error.value) == (
        "not enough memory on cpu for the 8 images of iteration 4: give a smaller batch_size, precision bfloat16 or "
        f"another device; {run.files.checkpoint} keeps iteration 3"
    )
    assert torch.load(run.files.checkpoint, weights_only=True)["iteration"] == 3
