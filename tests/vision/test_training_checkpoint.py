"""What a training's checkpoint holds, and what a check before it finds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.machine.ranks import Ranks
from rskip.tasks.loop_folder import check_same_training, read_checkpoint
from rskip.vision.data import ImageSet
from rskip.vision.training import Diverged, TrainingFolder, TrainingSettings
from rskip.vision.training.training_folder import TrainingCheckpoint, identity
from rskip.vision.training.training_run import TrainingRun


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


def test_a_checkpoint_is_the_state_when_it_was_saved(run):
    for _ in range(2):
        run.step()
    expected = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    momentum = run.optimiser.state_dict()["state"][0]["momentum_buffer"].clone()
    run.save()
    run.step()
    content = torch.load(run.files.checkpoint, weights_only=True)
    assert content["iteration"] == 2 and not torch.equal(run.model.conv1.weight, expected["conv1.weight"])
    assert all(torch.equal(content["model"][name], tensor) for name, tensor in expected.items())
    saved = content["optimiser"]["state"][0]["momentum_buffer"]
    assert torch.equal(saved, momentum) and saved.stride() == momentum.stride()


def test_an_older_checkpoint_may_name_a_setting_that_is_gone(run, tmp_path):
    """`cuda_graph` changed only how fast a training was."""
    run.step()
    run.save()
    checkpoint = read_checkpoint(run.files.checkpoint, TrainingCheckpoint, written_by="rskip vision train")
    checkpoint.settings["cuda_graph"] = True
    there = identity(checkpoint.settings, seed=1, processes=1)
    now = identity(run.settings.to_dict(), seed=1, processes=1)
    check_same_training(run.files.checkpoint, there, now)
    with pytest.raises(ValueError, match="lr: 0.1, now 0.2"):
        check_same_training(run.files.checkpoint, there, {**now, "lr": 0.2})


def test_a_checkpoint_is_what_torch_save_makes_of_the_state(run):
    """No tensor drags the memory of others along, and the optimiser's groups are as on any device."""
    for _ in range(2):
        run.step()
    run.save()
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
        f"another device; {run.files.checkpoint} holds iteration 3"
    )
    assert torch.load(run.files.checkpoint, weights_only=True)["iteration"] == 3
