"""What a training computes, against a plain PyTorch loop and plain arithmetic."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from rskip.vision.cifar_resnet import preact_resnet
from rskip.vision.data import TrainingBatches
from rskip.vision.evaluation import evaluate
from rskip.vision.model_file import load_model
from rskip.vision.training import Diverged, TrainingRun, TrainingSettings, read_curve, train
from tests.vision.conftest import noise

LOOP = sys.modules["rskip.vision.training"]  # the package's `train` is the function
SHORT = {
    "depth": 8, "batch_size": 16, "iterations": 7, "warmup_iterations": 2, "milestones": (5,), "channels_last": False
}  # fmt: skip
LR = [0.01, 0.01, 0.1, 0.1, 0.1, 0.01, 0.01]


@pytest.fixture(autouse=True)
def synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 training images, so that an epoch has batches of 16, 16 and 8; 30 test images."""
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(40 if train else 30))


def run(folder: Path, **values: object) -> TrainingRun:
    """A short training in one process on the CPU."""
    return train(TrainingSettings(**{**SHORT, **values}), folder=folder, seed=3, device="cpu")


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def heavy(name: str) -> bool:
    """Whether it is the weight of a convolution, a projection or the classifier, by its name."""
    return re.search(r"(conv\d|shortcut|^fc)\.weight$", name) is not None


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"connection": "sas", "nesterov": True, "decay": "weights", "weight_decay": 0.01, "label_smoothing": 0.1,
         "clip_norm": 0.5},
    ],
    ids=["defaults", "every option"],
)  # fmt: skip
def test_training_is_a_plain_pytorch_loop(values, tmp_path):
    run(tmp_path, **values)

    torch.manual_seed(3)
    model = preact_resnet(8, values.get("connection", "1xskip"), 10).train()
    batches = TrainingBatches(noise(40), batch_size=16, seed=3, device="cpu")
    losses, wrong = [], []
    decay = values.get("weight_decay", 2e-4)
    groups = [
        {"params": [parameter], "weight_decay": decay if values.get("decay") != "weights" or heavy(name) else 0}
        for name, parameter in model.named_parameters()
    ]
    optimiser = torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=values.get("nesterov", False))
    for iteration, lr in enumerate(LR):
        for group in optimiser.param_groups:
            group["lr"] = lr
        images, labels, _ = batches.batch(iteration)
        logits = model(images)
        loss = F.cross_entropy(logits, labels, label_smoothing=values.get("label_smoothing", 0.0))
        optimiser.zero_grad()
        loss.backward()
        if "clip_norm" in values:
            norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
            assert norm > values["clip_norm"]
            for parameter in model.parameters():
                parameter.grad *= values["clip_norm"] / norm
        optimiser.step()
        losses.append(loss.item())
        wrong.append(int((logits.argmax(1) != labels).sum()))

    trained = model_of(tmp_path)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(trained[name], tensor, rtol=1e-4, atol=1e-5)
    points = read_curve(tmp_path / "curve.jsonl")
    means = [(16 * (losses[k] + losses[k + 1]) + 8 * losses[k + 2]) / 40 for k in (0, 3)] + [losses[6]]
    assert [point.train_loss for point in points] == pytest.approx(means, rel=1e-4)
    assert [point.train_error for point in points] == [2.5 * sum(wrong[:3]), 2.5 * sum(wrong[3:6]), 6.25 * wrong[6]]


def test_the_curve_has_a_point_an_epoch_and_one_at_the_end(tmp_path):
    result = run(tmp_path, evaluate_every=2)
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    places = [(line["epoch"], line["iteration"], line["lr"]) for line in lines]
    assert places == [(1, 3, 0.1), (2, 6, 0.01), (3, 7, 0.01)]
    assert [line["test_error"] is None for line in lines] == [True, False, False]
    assert sorted(line["seconds"] for line in lines) == [line["seconds"] for line in lines]
    assert all(line["images_per_second"] > 0 for line in lines)
    assert list(result.points) == read_curve(tmp_path / "curve.jsonl")

    model, description = load_model(tmp_path)
    assert (description.finished, description.dataset) == (True, "cifar10")
    evaluation = evaluate(model, noise(30), dataset="cifar10")
    last = result.points[-1]
    assert (last.test_error, last.test_loss) == (evaluation.error, pytest.approx(evaluation.loss, rel=1e-6))


def test_bfloat16_keeps_parameters_and_statistics_in_float32(tmp_path):
    run(tmp_path / "bfloat16", precision="bfloat16", iterations=2)
    run(tmp_path / "float32", iterations=2)
    low, high = model_of(tmp_path / "bfloat16"), model_of(tmp_path / "float32")
    assert {tensor.dtype for tensor in low.values()} == {torch.float32, torch.int64}
    assert not torch.equal(low["conv1.weight"], high["conv1.weight"])
    torch.testing.assert_close(low["conv1.weight"], high["conv1.weight"], rtol=0, atol=0.01)


@pytest.mark.parametrize("fails", [False, True])
def test_compiling_leaves_no_trace_and_its_failure_is_one_line(fails, tmp_path, monkeypatch):
    """Both sizes of batch go through the compiled model once, before the first iteration."""
    sizes = []

    def compile_model(model: Any, *, dynamic: bool) -> Any:
        def forward(images: torch.Tensor) -> torch.Tensor:
            sizes.append(len(images))
            if fails and len(images) == 8:
                raise RuntimeError("CppCompileError: C++ compile error\n\nCommand:\ng++ ...")
            return model(images)

        return forward

    monkeypatch.setattr(torch, "compile", compile_model)
    if fails:
        told = r"^torch.compile failed \(CppCompileError: C\+\+ compile error\): give --no-compile$"
        with pytest.raises(ValueError, match=told):
            run(tmp_path, compile=True)
        return
    run(tmp_path / "plain", iterations=4)
    run(tmp_path / "compiled", iterations=4, compile=True)
    assert sizes == [16, 8, 16, 16, 8, 16]
    plain, compiled = (model_of(tmp_path / name) for name in ("plain", "compiled"))
    assert all(torch.equal(plain[name], compiled[name]) for name in plain)


def test_the_loss_is_looked_at_between_points_too(tmp_path, monkeypatch):
    monkeypatch.setattr("rskip.tasks.training.CHECK_EVERY", 2)
    monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(400))
    with pytest.raises(Diverged, match=r"loss is not finite after 2 iterations"):
        run(tmp_path, warmup_lr=1e30, warmup_iterations=1, milestones=(), iterations=20)  # an epoch has 25
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_line_an_epoch_where_there_is_no_terminal(tmp_path, capsys):
    run(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    places = [line.partition("   training loss ")[0] for line in lines]
    assert places[::2] == ["epoch 1/3   iteration 3   lr 0.1", "epoch 3/3   iteration 7   lr 0.01"]
    assert all("images/s" in line and "test loss" in line for line in lines)
    assert "left" in lines[0] and "left" not in lines[2]


def test_a_training_that_ends_before_its_first_milestone_says_so(tmp_path, capsys):
    for number, (milestones, said) in enumerate([((2, 9), True), ((1,), False), ((), False)]):
        run(tmp_path / str(number), iterations=2, milestones=milestones)
        note = "note: the learning rate never falls: the training ends after 2 iterations, and the first of its"
        assert capsys.readouterr().err.startswith(note) == said


def test_tensorboard_has_the_curve_without_the_points_after_the_checkpoint(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def killed(iteration: int, *_: Any, **__: Any) -> None:
        if iteration == 7:  # the checkpoint of 6 was written before its point
            raise RuntimeError("killed")

    settings = TrainingSettings(**SHORT, evaluate_every=2)  # the first of three points has no test error
    options = {"folder": tmp_path, "seed": 1, "device": "cpu", "tracker": "tensorboard"}
    with pytest.raises(RuntimeError, match="killed"):
        train(settings, **options, observer=killed)
    train(settings, **options)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = read_curve(tmp_path / "curve.jsonl")
    assert [(event.step, event.value) for event in events.Scalars("test/error")] == [
        (point.iteration, pytest.approx(point.test_error)) for point in points[1:]
    ]
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [
        (point.iteration, pytest.approx(point.train_loss)) for point in points
    ]


def test_divergence_keeps_the_last_good_checkpoint(tmp_path):
    told = r"not finite .* \(lr 1e\+30, connection 1xskip\): try .* 2rskip\+ln; .*checkpoint.pt holds iteration 4$"
    with pytest.raises(Diverged, match=told):
        run(tmp_path, lr=1e30, warmup_iterations=4, milestones=(), save_every=2, iterations=20)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["iteration"] == 4
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    assert [point.iteration for point in read_curve(tmp_path / "curve.jsonl")] == [3]
