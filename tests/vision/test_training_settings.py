"""Settings of a training: the papers' by default, every value checked, told in one line that names it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rskip.vision.training import TrainingSettings


def test_the_defaults_are_the_papers():
    assert TrainingSettings().to_dict() == {
        "dataset": "cifar10",
        "depth": 20,
        "connection": "1xskip",
        "shortcut": "zero_pad",
        "block": "basic",
        "batch_size": 128,
        "iterations": 64_000,
        "epochs": None,
        "schedule": "step",
        "lr": 0.1,
        "warmup_lr": 0.01,
        "warmup_iterations": 400,
        "milestones": [32_000, 48_000],
        "warmup_share": 0.2,
        "final_lr": 0.0,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 2e-4,
        "label_smoothing": 0.0,
        "clip_norm": None,
        "precision": "float32",
        "channels_last": True,
        "compile": False,
        "sync_batch_norm": False,
        "evaluate_every": 1,
        "save_every": 400,
    }


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"dataset": "cifar100", "depth": 164, "block": "bottleneck", "milestones": [10, 20], "clip_norm": 1},
        {"schedule": "one_cycle", "epochs": 30, "lr": 1, "warmup_share": 0.25, "nesterov": True, "final_lr": 0.001},
    ],
)
def test_settings_survive_json(values):
    settings = TrainingSettings.from_mapping(values)
    again = TrainingSettings.from_mapping(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
    assert json.dumps(again.to_dict()) == json.dumps(settings.to_dict())


def test_equal_settings_are_equal_however_they_are_written():
    one = TrainingSettings(connection="2.0RSKIP+LN", lr=1, milestones=[3, 5])
    assert one == TrainingSettings(connection="2rskip+ln", lr=1.0, milestones=(3, 5))
    assert one.connection == "2rskip+ln"


def test_epochs_become_iterations():
    settings = TrainingSettings(epochs=30)
    assert settings.iterations is None
    counted = settings.in_iterations(391)
    assert (counted.iterations, counted.epochs) == (11_730, None)
    assert dataclasses.replace(counted, iterations=None, epochs=30) == settings
    assert TrainingSettings(iterations=7).in_iterations(391).iterations == 7


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"weigth_decay": 1e-4}, ["unknown setting 'weigth_decay'", "did you mean 'weight_decay'?"]),
        ({"zzz": 1}, ["unknown setting 'zzz'", "known settings: dataset, depth"]),
        ({"dataset": "cifar1"}, ["dataset is 'cifar1'", "did you mean 'cifar10'?"]),
        ({"depth": 21}, ["depth is 21: expected 6n+2", "20 and 26"]),
        ({"depth": 2}, ["depth is 2: expected 6n+2", "the smallest is 8"]),
        ({"depth": 20, "block": "bottleneck"}, []),
        ({"depth": 110, "block": "bottleneck"}, []),
        ({"depth": 32, "block": "bottleneck"}, ["depth is 32: expected 9n+2 with bottleneck blocks; the nearest are"]),
        ({"depth": "20"}, ["depth is '20'", "expected a whole number"]),
        ({"depth": 20.0}, ["depth is 20.0", "expected a whole number"]),
        ({"depth": True}, ["depth is True", "expected a whole number"]),
        ({"depth": None}, ["depth is None", "expected a whole number"]),
        ({"connection": "2rskipp+ln"}, ["rskip"]),
        ({"connection": 2}, ["connection is 2", "expected a name"]),
        ({"connection": "prenorm+ln"}, ["prenorm is for text"]),
        ({"shortcut": "zero"}, ["shortcut is 'zero'", "did you mean 'zero_pad'?"]),
        ({"batch_size": 0}, ["batch_size is 0", "at least 1"]),
        ({"iterations": 10, "epochs": 1}, ["iterations=10 and epochs=1 are both given"]),
        ({"epochs": 0}, ["epochs is 0", "at least 1"]),
        ({"schedule": "cosine"}, ["schedule is 'cosine'", "step or one_cycle"]),
        ({"schedule": "one_cycle", "milestones": [5]}, ["milestones belongs to schedule step and this is one_cycle"]),
        ({"warmup_share": 0.5}, ["warmup_share belongs to schedule one_cycle and this is step"]),
        ({"milestones": [5, 5]}, ["milestones are [5, 5]", "rising"]),
        ({"milestones": [0, 5]}, ["milestones are [0, 5]"]),
        ({"milestones": "5"}, ["milestones is '5'", "a list of whole numbers"]),
        ({"milestones": [1.5]}, ["milestones is [1.5]", "a list of whole numbers"]),
        ({"lr": 0}, ["lr is 0.0", "above 0"]),
        ({"lr": float("nan")}, ["lr is nan", "a finite number"]),
        ({"lr": float("inf")}, ["lr is inf", "a finite number"]),
        ({"lr": "1e-1"}, ["lr is '1e-1'", "a finite number"]),
        ({"momentum": 1}, ["momentum is 1.0", "from 0 to below 1"]),
        ({"momentum": 0, "nesterov": True}, ["nesterov needs a momentum above 0"]),
        ({"nesterov": 1}, ["nesterov is 1", "true or false"]),
        ({"weight_decay": -1e-4}, ["weight_decay is -0.0001", "at least 0"]),
        ({"label_smoothing": 1.0}, ["label_smoothing is 1.0"]),
        ({"clip_norm": 0}, ["clip_norm is 0.0", "above 0"]),
        ({"precision": "bf16"}, ["precision is 'bf16'", "float32 or bfloat16"]),
        ({"save_every": 0}, ["save_every is 0"]),
        ({"evaluate_every": 0}, ["evaluate_every is 0"]),
    ],
)
def test_wrong_settings_are_told_in_one_line(values, words):
    if not words:
        TrainingSettings.from_mapping(values)
        return
    with pytest.raises(ValueError) as error:
        TrainingSettings.from_mapping(values)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
