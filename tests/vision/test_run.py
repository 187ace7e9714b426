"""`rskip run` of a vision recipe on a few random images: stages, records, publishing. The training is a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from rskip.cli.main import main
from rskip.files.checksum import sha256_file
from rskip.records import read_record
from rskip.tasks.process import DIVERGED, CommandFailed, TrainingDiverged
from rskip.vision import Classifier
from rskip.vision import run as vision_run
from rskip.vision.data import ImageSet, evaluation_batches
from rskip.vision.model_file import load_model
from rskip.zoo.loading import load_entry
from rskip.zoo.registry import read_registry
from tests.vision.conftest import noise

RECIPE = """
kind: vision
train:
  dataset: cifar10
  depth: 8
  connection: 2rskip+ln
  batch_size: 16
  epochs: 2
  lr: 0.02
  warmup_iterations: 0
  precision: bfloat16
show: 2
expected: {error: 90.0, minutes: 1}
paper: [{error: 6.02, table: rSkip Table 1}]
"""
CLASSES = tuple(f"class{number}" for number in range(10))


IMAGES = {train: replace(noise(count), classes=CLASSES) for train, count in ((True, 40), (False, 30))}


def load_pictures(name: str, root: Path | None = None, *, train: bool, download: bool = False) -> ImageSet:
    return IMAGES[train]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with the recipe; the command of a training is called in this process."""
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    for module in ("rskip.vision.run", "rskip.vision.training"):
        monkeypatch.setattr(import_module(module), "load_dataset", load_pictures)
    monkeypatch.setattr("rskip.machine.device.bfloat16_is_slow", lambda device: True)

    def run_here(command: list[str], *, log: Path, on_poll: Callable[[], None], **_: object) -> None:
        with (tmp_path / "commands").open("a") as file:
            file.write(" ".join(command) + "\n")
        with log.open("a") as file, redirect_stderr(file):
            status = main(command[1:])
        if status == DIVERGED:
            raise TrainingDiverged("it diverged")
        if status != 0:
            raise CommandFailed(f"it failed (log: {log})")
        on_poll()

    monkeypatch.setattr("rskip.tasks.run.run_logged", run_here)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def run(*arguments: str) -> int:
    return main(["run", "mine.yaml", "--gpus", "0", *arguments])


def commands(project: Path) -> list[str]:
    return (project / "commands").read_text().splitlines()


def test_a_run_leaves_a_record_of_everything(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "7") == 0
    record = read_record(project / "results/mine/7.json")
    assert (record.recipe, record.run, record.kind, record.seed) == ("mine", "mine", "vision", 7)
    assert record.config["train"]["connection"] == "2rskip+ln"
    assert (record.config["train"]["epochs"], record.config["train"]["momentum"]) == (2, 0.9)

    trained = project / "runs/mine/7/training/model.safetensors"
    assert record.checkpoint_sha256 == sha256_file(trained)
    model, _ = load_model(trained)
    ((images, labels),) = evaluation_batches(IMAGES[False], batch_size=30, device=torch.device("cpu"))
    with torch.no_grad():
        logits = model(images)
    wrong = int((logits.argmax(dim=1) != labels).sum())
    outside = int((logits.topk(5).indices != labels[:, None]).all(dim=1).sum())
    assert record.metrics["error"] == round(100 * wrong / 30, 4)
    assert record.metrics["accuracy"] == round(100 - 100 * wrong / 30, 4)
    assert record.metrics["top5_error"] == round(100 * outside / 30, 4)
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    assert record.metrics["test_loss"] == pytest.approx(loss, abs=1e-4)
    assert record.parameters == sum(each.numel() for each in model.parameters())

    assert [(point["epoch"], point["iteration"]) for point in record.curve] == [(1, 3), (2, 6)]
    assert record.metrics["train_loss"] == round(record.curve[-1]["train_loss"], 4)
    assert record.curve[-1]["test_error"] == pytest.approx(record.metrics["error"], abs=1e-3)
    told = {name: record.training[name] for name in ("pieces", "precision", "epochs", "iterations")}
    assert told == {"pieces": 1, "precision": "float32", "epochs": 2, "iterations": 6}
    assert record.data["images"] == {"train": 40, "test": 30}
    assert record.data["md5"]["data_batch_1"] == "c99cafc152244af753f735de768cd75f"  # as its authors publish it
    assert len(record.data["md5"]) == 7
    text = (project / "results/mine/7.json").read_text()
    assert str(project) not in text and str(Path.home()) not in text

    printed = capsys.readouterr().out
    assert "training in float32, though the recipe says bfloat16: bfloat16 is slower on a CPU without" in printed
    assert "\nevaluating in float32 for the run record, on 30 test images\n" in printed
    assert f"error, %          {record.metrics['error']:7.2f}   (expected by the recipe: 90)" in printed
    assert "the paper            6.02   (error, %, rSkip Table 1; from the paper, not from this run)" in printed
    assert "\nepoch 1/2   iteration 3   lr " in printed and "\nepoch 2/2   iteration 6   lr " in printed
    assert printed.count("  class") == 2
    assert "runs/mine/7/training/model.safetensors" in printed.partition("see also")[2]


def test_a_class_without_test_images_is_not_among_the_worst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"taken_for": None, "taken": 0, "count": 3}
    classes = [{"name": "cat", "error": None, **figures}, {"name": "dog", "error": 5.0, **figures}]
    (tmp_path / "evaluation.json").write_text(json.dumps({"per_class": classes}))
    monkeypatch.setattr(vision_run, "evaluation_file", lambda run: tmp_path / "evaluation.json")
    assert vision_run.sample_outputs(None, 2).split() == ["dog", "error", "5.00", "%"]  # type: ignore[arg-type]


def test_the_command_of_a_training_says_what_differs_from_the_papers(project: Path) -> None:
    Path("there/cifar10").mkdir(parents=True)
    Path("there/cifar10/data_batch_1.xz").touch()
    changes = ["train.connection=1xskip", "train.lr=0.01", "probe.every=4"]
    assert run("--set", *changes, "--seeds", "3", "--mirror", "there") == 0
    (folder,) = (project / "runs").iterdir()
    assert commands(project) == [
        "rskip vision train --set depth=8 batch_size=16 iterations=null epochs=2 lr=0.01 warmup_iterations=0 --seed 3 "
        f"--output runs/{folder.name}/3/training --data there --precision float32 --no-compile --probe-every 4 "
        f"--probe-file runs/{folder.name}/3/probe.jsonl --device cpu"
    ]
    trace = (project / "results" / folder.name / "3.probe.jsonl").read_text()
    assert trace == (folder / "3" / "probe.jsonl").read_text() and trace.count("\n") == 2
    config = load_model(folder / "3" / "training")[1].config
    assert (config["connection"], config["depth"]) == ("1xskip", 8)


def test_a_training_that_diverges_has_a_record_that_says_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--set", "train.connection=1xskip", "train.lr=1e+30") == 0
    (path,) = (project / "results").glob("*/1.json")
    record = read_record(path)
    assert record.diverged and record.metrics == {} and record.checkpoint_sha256 is None
    assert record.parameters == 75_290 and record.curve == []
    assert not list((project / "runs").glob("*/*/training/model.safetensors"))
    assert "seed 1: the training diverged" in capsys.readouterr().out
    assert run("--set", "train.connection=1xskip", "train.lr=1e+30") == 0
    assert "exists: skipping this run" in capsys.readouterr().out


def test_a_dry_run_prints_the_commands_and_does_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run", "--seeds", "1", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["rskip", "vision", verb] for verb in ("train", "evaluate")] * 2
    assert lines[2].endswith(" --seed 2 --output runs/mine/2/training --precision float32 --no-compile --device cpu")
    assert lines[3] == "rskip vision evaluate runs/mine/2/training --precision float32 --device cpu"
    assert main(["run", "mine.yaml", "--gpus", "4", "--dry-run"]) == 0
    train, evaluate = capsys.readouterr().out.splitlines()
    assert train.startswith("torchrun --standalone --nproc-per-node 4 ") and "/rskip vision train --set" in train
    assert train.endswith(" --seed 1 --output runs/mine/1/training --precision bfloat16 --no-compile")
    assert evaluate == "rskip vision evaluate runs/mine/1/training --precision float32"
    assert [path.name for path in project.iterdir()] == ["mine.yaml"]


def test_mistakes_are_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in [
        (["--set", "train.depth=21"], "mine.yaml: train.depth is 21"),
        (["--set", "train={depth: 8}"], "train.connection is missing"),
        (["--mirror", "https://example.org"], "'https://example.org': expected a folder"),
        (["--mirror", "nowhere"], "--mirror is 'nowhere', which is not a folder: expected the folder with cifar-10"),
        (["--mirror", "."], "--mirror is '.', which does not hold cifar10: expected the folder with cifar-10-batches"),
    ]:
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not (project / "results").exists() and not (project / "commands").exists()
    assert not (project / "runs").exists()


def test_publish_writes_the_first_seeds_weights_as_they_are_and_the_zoo_loads_them(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--seeds", "2", "1", "--publish") == 0
    folder = project / "checkpoints/mine"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    model = {"depth": 8, "connection": "2rskip+ln", "num_classes": 10, "shortcut": "zero_pad", "block": "basic"}
    about = {"format": 1, "task": "vision", "model": model, "dataset": "cifar10", "classes": list(CLASSES)}
    assert json.loads((folder / "config.json").read_text()) == about
    theirs, _ = load_model(project / "runs/mine/2/training")
    assert "checkpoints/mine: seed 2\n" in capsys.readouterr().out

    (project / "recipes").mkdir()
    (project / "mine.yaml").rename(project / "recipes/mine.yaml")  # where a run's recipe is looked for
    assert main(["zoo", "publish", "mine", "--seed", "2"]) == 0
    entry = read_registry(project / "checkpoints.json")["preact_resnet8_2rskip_ln.cifar10"]
    record = read_record(project / "results/mine/2.json")
    assert (entry.seed, entry.dtype, entry.figures[0].value) == (2, "float32", record.metrics["error"])
    classifier = load_entry(entry, root=project)
    assert isinstance(classifier, Classifier) and tuple(classifier.classes) == CLASSES
    ours = classifier.model.state_dict()
    assert ours.keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours[name], tensor), name
