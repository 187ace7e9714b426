"""Settings of a training: the papers' by default, every value checked; the learning rate that they give."""

from __future__ import annotations

import json

import pytest
import torch

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.vision.settings import learning_rate
from rskip.vision.training import TrainingSettings


def test_the_defaults_are_the_papers():
    assert json.dumps(TrainingSettings().to_dict()) == json.dumps({
        "dataset": "cifar10", "depth": 20, "connection": "1xskip", "shortcut": "zero_pad", "block": "basic",
        "batch_size": 128, "iterations": 64_000, "epochs": None, "schedule": "step", "lr": 0.1, "warmup_lr": 0.01,
        "warmup_iterations": 400, "milestones": [32_000, 48_000], "warmup_share": 0.2, "final_lr": 0.0, "momentum": 0.9,
        "nesterov": False, "weight_decay": 2e-4, "label_smoothing": 0.0, "clip_norm": None, "precision": "float32",
        "channels_last": True, "compile": False, "sync_batch_norm": False, "evaluate_every": 1, "save_every": 400,
    })  # fmt: skip


def test_epochs_become_iterations():
    assert TrainingSettings(epochs=30).in_iterations(391) == TrainingSettings(iterations=11_730)
    assert TrainingSettings(iterations=7).in_iterations(391).iterations == 7


@pytest.mark.parametrize(
    ("values", "name", "words"),
    [
        ({"weigth_decay": 1e-4}, "weigth_decay", "did you mean weight_decay?"),
        ({"dataset": "cifar1"}, "dataset", "did you mean cifar10?"),
        ({"depth": 21}, "depth", "6n+2 with basic blocks; the nearest are 20 and 26"),
        ({"depth": None}, "depth", "a whole number"),
        ({"connection": "2rskipp+ln"}, "connection", "did you mean '2rskip+ln'?"),
        ({"shortcut_input": "activated", "shortcut": "projection"}, "shortcut_input", "is for shortcut zero_pad"),
        ({"iterations": 10, "epochs": 1}, "iterations", "is 10 and epochs is 1: expected one of them"),
        ({"schedule": "one_cycle", "milestones": [5]}, "milestones", "schedule step, but schedule is one_cycle"),
        ({"final_lr": 0.5}, "final_lr", "schedule one_cycle"),
        ({"milestones": [5, 5]}, "milestones", "is [5, 5]: expected rising"),
        ({"momentum": 0, "nesterov": True}, "nesterov", "needs a momentum above 0"),
        ({"patch": 8}, "patch", "is for model vit"),
        ({"model": "vit", "block": "basic", "shortcut": "projection"}, "shortcut", "is for model preact_resnet"),
        ({"model": "vit", "connection": "2rskip+bn"}, "connection", "'2rskip+bn'"),
        ({"model": "resnet18"}, "model", "preact_resnet or vit"),
        ({"optimiser": "adamw", "momentum": 0.8}, "momentum", "is for optimiser sgd"),
        ({"data": "photos"}, "epochs", "epochs or iterations, for your own images"),
    ],
)
def test_wrong_settings_are_named(values, name, words):
    with pytest.raises(SettingError) as error:
        convert(values, TrainingSettings)
    assert error.value.name == name and words in str(error.value) and "\n" not in str(error.value)


def test_equal_settings_are_equal_however_they_are_written():
    one = TrainingSettings(connection="2.0RSKIP+LN", lr=1, milestones=[3, 5])
    assert one == convert({"connection": "2rskip+ln", "lr": 1.0, "milestones": [3, 5]}, TrainingSettings)
    assert (one.connection, one.milestones) == ("2rskip+ln", (3, 5))
    assert convert(json.loads(json.dumps(one.to_dict())), TrainingSettings) == one


def test_the_papers_schedule():
    rates = {0: 0.01, 399: 0.01, 400: 0.1, 31_999: 0.1, 32_000: 0.01, 47_999: 0.01, 48_000: 0.001, 63_999: 0.001}
    assert {iteration: learning_rate(TrainingSettings(), iteration) for iteration in rates} == rates


def test_steps_without_warm_up_are_pytorchs():
    settings = TrainingSettings(warmup_iterations=0, milestones=(3, 5, 6), lr=0.3, iterations=9)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones=[3, 5, 6])
    for iteration in range(9):
        assert learning_rate(settings, iteration) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimiser.step()
        theirs.step()


def test_one_cycle_rises_and_falls_in_straight_lines():
    ends = {"lr": 0.4, "warmup_lr": 0.1, "warmup_share": 0.3, "final_lr": 0.05}
    settings = TrainingSettings(schedule="one_cycle", iterations=100, **ends)
    rates = {0: 0.1, 15: 0.25, 30: 0.4, 65: 0.225, 99: 0.05 + 0.35 / 70}
    assert {iteration: learning_rate(settings, iteration) for iteration in rates} == pytest.approx(rates)
    without = TrainingSettings(schedule="one_cycle", iterations=4, lr=0.4, warmup_share=0.0)
    assert [learning_rate(without, iteration) for iteration in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])
