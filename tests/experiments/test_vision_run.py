"""`rskip run` of a vision recipe on a few random pictures: stages, records, publishing. The training is a real one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch
from rskip.experiments.process import CommandFailed
from rskip.experiments.record import read_record

from rskip.cli.main import main
from rskip.experiments import training_precision, vision_run
from rskip.files.checksum import sha256_file
from rskip.vision.data import ImageSet, evaluation_batches
from rskip.vision.model_file import load_model
from rskip.zoo.registry import read_registry

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


def pictures(count: int, *, seed: int) -> ImageSet:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return ImageSet(images=images, labels=torch.arange(count) % 10, classes=CLASSES)


IMAGES = {True: pictures(40, seed=1), False: pictures(30, seed=2)}


def load_pictures(name: str, root: Path | None = None, *, train: bool, download: bool = False) -> ImageSet:
    return IMAGES[train]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with the recipe; the command of a training is called in this process."""
    pytest.importorskip("torchvision")
    monkeypatch.chdir(tmp_path)
    for module in ("rskip.experiments.vision_data", "rskip.vision.training.train", "rskip.vision.data"):
        monkeypatch.setattr(import_module(module), "load_cifar", load_pictures)
    monkeypatch.setattr(training_precision, "bfloat16_is_slow", lambda device: True)

    def run_here(command: list[str], *, log: Path, on_poll: Callable[[], None], **_: object) -> None:
        with (tmp_path / "commands").open("a") as file:
            file.write(" ".join(command) + "\n")
        if main(command[1:]) != 0:
            raise CommandFailed(f"it failed (log: {log})")
        on_poll()

    monkeypatch.setattr(vision_run, "run_logged", run_here)
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

    trained = project / "runs/mine/7/training/model.pt"
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
    assert record.machine["gpu"] is None and record.packages["torch"] == torch.__version__.partition("+")[0]
    assert "torchvision" in record.packages
    text = (project / "results/mine/7.json").read_text()
    assert str(project) not in text and str(Path.home()) not in text

    printed = capsys.readouterr().out
    assert "in float32: the recipe says bfloat16" in printed
    assert f"error, %          {record.metrics['error']:7.2f}   (the recipe expects 90)" in printed
    assert "the paper            6.02   (error, %, rSkip Table 1; not a result of ours)" in printed
    assert printed.count("  epoch   ") == 2
    assert printed.count("  class") == 2
    assert "runs/mine/7/training/model.pt" in printed.partition("where to look next")[2]


def test_what_is_done_is_not_done_again(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    before = (project / "results/mine/1.json").read_bytes()
    assert run() == 0
    assert "results/mine/1.json is there already: not run again" in capsys.readouterr().out
    assert (project / "results/mine/1.json").read_bytes() == before
    (project / "results/mine/1.json").unlink()
    assert run() == 0
    assert len(commands(project)) == 1
    again, first = read_record(project / "results/mine/1.json"), json.loads(before)
    assert (again.metrics, again.training) == (first["metrics"], first["training"])


def test_a_mirror_that_is_no_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--mirror", "nowhere") == 2
    message = "--mirror nowhere is no folder: expected one that holds cifar10's, or no --mirror"
    assert capsys.readouterr().err == f"rskip run: error: {message}\n"
    assert not (project / "commands").exists()


def test_the_command_of_a_training(project: Path) -> None:
    Path("there").mkdir()
    assert run("--set", "train.connection=1xskip", "train.lr=0.01", "--seeds", "3", "--mirror", "there") == 0
    (folder,) = (project / "runs").iterdir()
    assert commands(project) == [
        'rskip vision train mine.yaml --set connection="1xskip" lr=0.01 --seed 3 '
        f"--output runs/{folder.name}/3/training --data there --precision float32 --device cpu"
    ]
    config = load_model(folder / "3" / "training")[1].config
    assert (config["connection"], config["depth"]) == ("1xskip", 8)


def test_a_training_that_diverges_is_one_line_and_leaves_no_record(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--set", "train.connection=1xskip", "train.lr=1e+30") == 1
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith("rskip run: error: it failed")
    assert not (project / "results").exists() and not list((project / "runs").glob("*/*/training/model.pt"))


def test_a_dry_run_prints_the_commands_and_does_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run", "--seeds", "1", "2") == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "rskip vision train mine.yaml --seed 2 --output runs/mine/2/training --precision float32 --device cpu",
        "rskip vision evaluate runs/mine/2/training --device cpu",
    ]
    assert main(["run", "mine.yaml", "--gpus", "4", "--dry-run"]) == 0
    train, evaluate = capsys.readouterr().out.splitlines()
    assert train.startswith("torchrun --standalone --nproc-per-node 4 ")
    assert train.endswith("/rskip vision train mine.yaml --seed 1 --output runs/mine/1/training --precision bfloat16")
    assert evaluate == "rskip vision evaluate runs/mine/1/training"
    assert [path.name for path in project.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "train.depth=21"], "mine.yaml: train.depth is 21: expected 6n+2 with basic blocks"),
        (["--set", "train.connection=2rskpi+ln"], "did you mean"),
        (["--set", "train.learning_rate=1"], "unknown key train.learning_rate"),
        (["--set", "train.dataset=cifar11"], "'cifar11'"),
        (["--set", "trian.lr=1"], "unknown key trian; did you mean train?"),
        (["--set", "train=7"], "train is 7; expected a mapping"),
        (["--set", "train={depth: 8}"], "train.dataset is missing"),
        (["--mirror", "https://example.org"], "--mirror https://example.org: expected a folder"),
    ],
)
def test_mistakes_are_one_line(
    project: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (project / "results").exists()


def test_more_gpus_than_images_in_a_batch_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 64)
    with pytest.raises(ValueError, match="--gpus 17: train.batch_size is 16"):
        from rskip.experiments.run import run_recipe

        from rskip.experiments.recipe import load_recipe

        run_recipe(load_recipe("mine.yaml"), seeds=[1], gpus=17)


def test_publish_writes_the_first_seeds_weights_as_they_are(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--seeds", "2", "1", "--publish") == 0
    folder = project / "checkpoints/mine"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "record.json"]
    record = read_record(folder / "record.json")
    assert record.seed == 2 and record == read_record(project / "results/mine/2.json")
    published = record.published or {}
    assert published["sha256"] == sha256_file(folder / "model.safetensors")
    assert published["bytes"] == (folder / "model.safetensors").stat().st_size
    assert (published["dtype"], published["error"]) == ("float32", record.metrics["error"])
    assert json.loads((folder / "config.json").read_text()) == {
        "format": 1,
        "task": "image-classification",
        "model": {
            "depth": 8, "connection": "2rskip+ln", "num_classes": 10, "shortcut": "zero_pad", "block": "basic"
        },
        "dataset": "cifar10",
        "classes": list(CLASSES),
    }  # fmt: skip
    ours, _ = load_model(folder)
    theirs, _ = load_model(project / "runs/mine/2/training")
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    assert f"checkpoints/mine: seed 2, {published['bytes'] / 1e6:.1f} MB in float32" in capsys.readouterr().out


def test_another_seed_takes_the_place_of_what_was_published(project: Path) -> None:
    assert run("--publish") == 0
    assert run("--seeds", "3", "--publish") == 0
    assert read_record(project / "checkpoints/mine/record.json").seed == 3
    assert read_record(project / "results/mine/1.json").published is None
    assert [path.name for path in (project / "checkpoints").iterdir()] == ["mine"]


def test_a_finished_run_becomes_a_model_of_the_zoo_in_one_command(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--seeds", "1", "2") == 0
    (project / "recipes").mkdir()
    (project / "mine.yaml").rename(project / "recipes/mine.yaml")
    assert main(["zoo", "publish", "mine", "--seed", "2"]) == 0
    entry = read_registry(project / "checkpoints.json")["preact_resnet8_2rskip_ln.cifar10"]
    second = read_record(project / "results/mine/2.json")
    assert (entry.figures[0].value, entry.figures[0].seeds) == (second.metrics["error"], (2,))
    assert (entry.figures[1].seeds, entry.figures[1].of) == ((1, 2), "run")
    assert sha256_file(project / "checkpoints/mine/model.safetensors") == entry.files["model.safetensors"].sha256

    dataclasses.replace(second, date="2026-01-01", published=None).write(project / "results/mine/2.json")
    assert main(["zoo", "publish", "mine"]) == 0
    assert read_record(project / "checkpoints/mine/record.json").seed == 2
    assert read_record(project / "results/mine/2.json") == dataclasses.replace(second, date="2026-01-01")

    capsys.readouterr()
    recipe = project / "recipes/mine.yaml"
    recipe.write_text(recipe.read_text().replace("lr: 0.02", "lr: 0.03"))
    assert main(["zoo", "publish", "mine", "--seed", "1"]) == 2
    assert "results/mine/1.json was made with other settings (train.lr: 0.02" in capsys.readouterr().err
    assert read_record(project / "checkpoints/mine/record.json").seed == 2


def _other_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = load_model(project / "runs/mine/1/training")
    ((images, _),) = evaluation_batches(IMAGES[False], batch_size=30, device=torch.device("cpu"))
    with torch.no_grad():
        right = model(images).argmax(dim=1)
    monkeypatch.setitem(IMAGES, False, dataclasses.replace(IMAGES[False], labels=right))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_other_error, "when its published weights are read back"),
        (lambda project, patch: patch.setattr("rskip.experiments.published_weights.MAX_BYTES", 1), "the model takes"),
        (lambda project, patch: (project / "runs/mine/1/training/model.pt").unlink(), "model.pt is gone"),
        (lambda project, patch: (project / "runs/mine/1/training/model.pt").write_bytes(b"x"), "is not the file"),
    ],
)
def test_what_is_not_fit_to_be_published_leaves_the_published_weights_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil, message: str
) -> None:
    assert run("--publish") == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in (project / "checkpoints").rglob("*"))
    capsys.readouterr()
    spoil(project, monkeypatch)
    assert run("--publish") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted((path, path.stat().st_mtime_ns) for path in (project / "checkpoints").rglob("*")) == before
