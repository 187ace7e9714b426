"""`rskip vision` as a user meets it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import rskip
from rskip.analysis.trace import read_updates
from rskip.cli import _vision
from rskip.cli._vision import slow_rank, training_settings
from rskip.cli.main import build_parser, main
from rskip.machine.ranks import Ranks
from rskip.vision.cifar_resnet import PreActResNet, preact_resnet
from rskip.vision.model_file import load_model
from rskip.vision.training import TrainingSettings, read_curve
from tests.vision.conftest import noise

LOOP = sys.modules["rskip.vision.training"]
SHORT = ("--depth", "8", "--batch-size", "16", "--iterations", "5", "--set", "warmup_iterations=2", "milestones=[4]")
RECIPE = """\
kind: vision
description: tiny
train:
  dataset: cifar10
  depth: 8
  connection: 2rskip+ln
  batch_size: 16
  iterations: 5
  milestones: [4]
  precision: float32
"""


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 training images, 30 test images."""
    for module in (_vision, LOOP):
        monkeypatch.setattr(module, "load_dataset", lambda *_, train, **__: noise(40 if train else 30))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(LOOP, "load_dataset", lambda name, root, *, train, download: noise(40 if train else 30))
        assert main(["vision", "train", *SHORT, "--precision", "float32", "--output", str(folder)]) == 0
    return folder


def settings_of(*arguments: str, output: Path = Path("nowhere")) -> TrainingSettings:
    """What `rskip vision train` would train with."""
    return chosen(*arguments, output=output)[0]


def chosen(*arguments: str, output: Path = Path("nowhere")) -> tuple[TrainingSettings, list[str]]:
    """The same, and what it says of its choices."""
    argv = ["vision", "train", *arguments, "--output", str(output)]
    device = torch.device("cpu")
    return training_settings(build_parser(argv).parse_args(argv), device, Ranks(), slow=slow_rank(device, Ranks()))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_a_training_is_evaluated_in_its_own_precision(data, trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "copy")
    run = tmp_path / "copy" / "run.json"
    run.write_text(run.read_text().replace('"precision": "float32"', '"precision": "bfloat16"'))
    for more, precision in (((), "bfloat16"), (("--precision", "float32"), "float32")):
        assert main(["vision", "evaluate", str(tmp_path / "copy"), *more, "--json"]) == 0
        captured = capsys.readouterr()
        assert json.loads(captured.out)["precision"] == precision
        assert ("computing in bfloat16, as in training" in captured.err) == (not more)


def test_options_replace_the_recipes_settings(tmp_path):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    as_written = settings_of(str(recipe))
    assert as_written.to_dict() == {
        **TrainingSettings().to_dict(),
        **{"depth": 8, "connection": "2rskip+ln", "batch_size": 16, "iterations": 5, "milestones": [4]},
    }
    changed = settings_of(
        str(recipe), "--connection", "sas", "--epochs", "3", "--lr", "2e-2", "--nesterov", "--precision", "bfloat16",
        "--set", "train.milestones=[2,3]", "clip_norm=1",
    )  # fmt: skip
    assert changed.to_dict() == {
        **as_written.to_dict(),
        **{"connection": "sas", "epochs": 3, "iterations": None, "lr": 0.02, "nesterov": True},
        **{"precision": "bfloat16", "milestones": [2, 3], "clip_norm": 1.0},
    }
    recipe.write_text(RECIPE.replace("iterations: 5", "epochs: 5"))
    assert settings_of(str(recipe), "--iterations", "7").in_iterations(3).iterations == 7


@pytest.mark.parametrize("slow", [True, False])
def test_precision_is_the_best_that_the_device_multiplies(slow, tmp_path, monkeypatch):
    monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device: slow)
    best = "float32" if slow else "bfloat16"
    said = ["computing in float32: this CPU has no bfloat16 instructions"] if slow else []
    settings, notes = chosen("--device", "cpu")
    assert (settings.precision, notes) == (best, said)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE.replace("float32", "bfloat16"))
    settings, notes = chosen(str(recipe), "--device", "cpu")
    assert (settings.precision, notes) == (best, said)
    recipe.write_text(RECIPE)
    for explicit in ("bfloat16", "float32"):
        assert settings_of(str(recipe), "--precision", explicit).precision == explicit
        assert settings_of(str(recipe), "--set", f"precision={explicit}").precision == explicit
    settings, notes = chosen(str(recipe))
    assert (settings.precision, notes) == ("float32", [])


def test_training_and_evaluation_agree(data, trained, capsys):
    settings = json.loads((trained / "run.json").read_text())["settings"]
    assert (settings["depth"], settings["iterations"], settings["milestones"]) == (8, 5, [4])
    pixels = torch.rand(2, 3, 32, 32)
    assert torch.equal(rskip.load(trained)(pixels), load_model(trained)[0](pixels))
    last = read_curve(trained / "curve.jsonl")[-1]

    assert main(["vision", "evaluate", str(trained)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{trained / 'model.safetensors'}: PreAct-ResNet-8, 1xskip, cifar10 test\n")
    assert f"error {last.test_error:.2f} % (" in printed and f"loss {last.test_loss:.4f}" in printed

    assert main(["vision", "evaluate", str(trained), "--json", "--batch-size", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["error"] == last.test_error and found["loss"] == pytest.approx(last.test_loss, rel=1e-5)
    assert sum(sum(row) for row in found["confusion"]) == found["count"] == 30
    assert [each["name"] for each in found["per_class"]] == list("abcdefghij")
    model = preact_resnet(8)
    assert found["model"] == {
        "path": str(trained / "model.safetensors"),
        "config": model.config,
        "dataset": "cifar10",
        "iteration": None,
        "iterations": None,
        "finished": True,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    assert main(["vision", "evaluate", str(trained), "--json", "--split", "train"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert (other["split"], other["count"], "recalibrated" in other) == ("train", 40, False)
    assert main(["vision", "evaluate", str(trained), "--json", "--recalibrate"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["recalibrated"] and again["model"] == found["model"] and again["loss"] != found["loss"]
    assert main(["vision", "evaluate", str(trained), "--recalibrate"]) == 0
    assert capsys.readouterr().out.partition("\n")[0].endswith("cifar10 test, statistics recalibrated")


def test_a_probe_changes_nothing(data, trained, tmp_path, refused):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("2rskip+ln", "1xskip") + "  warmup_iterations: 2\nprobe: {every: 2}\n")
    assert main(["vision", "train", str(recipe), "--output", str(tmp_path)]) == 0
    assert [each["update"] for each in read_updates(tmp_path / "probe.jsonl")] == [1, 2, 4]
    for name, tensor in tensors(trained).items():
        assert torch.equal(tensors(tmp_path)[name], tensor), name
    refused("--probe-every is 0: expected 1 or more", "vision", "train", "--probe-every", "0", "--output", "out")
    refused("--probe-file needs --probe-every N", "vision", "train", "--probe-file", "a", "--output", "out")


def test_a_stopped_training_is_a_line_and_the_signals_status(data, tmp_path, monkeypatch, capsys):
    step = LOOP.TrainingRun.step
    monkeypatch.setattr(LOOP.TrainingRun, "step", lambda self: (signal.raise_signal(signal.SIGTERM), step(self)))
    assert main(["vision", "train", *SHORT, "--output", str(tmp_path)]) == 128 + signal.SIGTERM
    assert "rskip vision train: stopped by SIGTERM after 1 iterations, saved in " in capsys.readouterr().err


# mistakes


def test_settings_that_no_training_can_have(data, tmp_path, refused):
    output = ("--output", str(tmp_path / "out"))
    nearest = "--depth is 21: expected 6n+2 with basic blocks; the nearest are 20 and 26"
    refused(nearest, "vision", "train", "--depth", "21", *output)
    refused("no recipe", "vision", "train", str(tmp_path / "none.yaml"), *output)
    for seed in ("-1", str(2**64)):
        refused(f"the seed is {seed}: expected 0 to {2**64 - 1}", "vision", "train", *SHORT, "--seed", seed, *output)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(RECIPE)
    message = "tiny.yaml: train.depth is 9: expected 6n+2 with basic blocks"
    refused(message, "vision", "train", str(recipe), "--depth", "9", *output)


def test_out_of_memory(data, trained, monkeypatch, refused):
    def exhausted(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(PreActResNet, "forward", exhausted)
    refused("not enough memory: give a smaller --batch-size", "vision", "evaluate", str(trained))


def test_models_that_cannot_be_evaluated(data, trained, tmp_path, monkeypatch, refused):
    translator = "transformer_tiny_2rskip_ln.multi30k.en-de"
    refused(f"{translator} is a model for translation: expected one for vision", "vision", "evaluate", translator)
    asked = ("--depth", "110", "--connection", "2rskip+ln")
    other = "holds depth 8, connection 1xskip, not the depth 110, connection 2rskip+ln asked for"
    refused(other, "vision", "evaluate", trained, *asked)
    refused("x.gif: expected a file name that ends in .png or .svg", "vision", "evaluate", "none", "--plot", "x.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused("install the extra plots", "vision", "evaluate", str(trained), "--plot", str(tmp_path / "x.svg"))


def test_a_rank_ends_with_its_torchrun(data, tmp_path, monkeypatch, refused):
    """A torchrun that is killed while its ranks start would leave them waiting for its store."""
    ended = []

    def refuse(*_: Any) -> Any:
        raise ValueError("no group here")

    monkeypatch.setattr("rskip.cli._looped.end_with_parent", lambda: ended.append(True))
    monkeypatch.setattr("rskip.cli._looped.process_group", refuse)
    for count in ("1", "2"):
        monkeypatch.setenv("WORLD_SIZE", count)
        refused("no group here", "vision", "train", *SHORT, "--output", str(tmp_path / "out"))
        assert len(ended) == int(count) - 1
