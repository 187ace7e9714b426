"""`rskip vision train --data FOLDER` as a user meets it: trained, evaluated, resumed, classified with, in a recipe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from rskip.cli.main import main
from rskip.vision import Classifier
from rskip.vision.settings import chosen_schedule
from rskip.vision.training import read_curve
from tests.cli.conftest import Refused

LOOP = sys.modules["rskip.vision.training"]
pytest.importorskip("torchvision")
SHORT = ("--depth", "8", "--precision", "float32", "--batch-size", "16", "--epochs", "3")


def noise(seed: int, count: int) -> np.ndarray:
    """Images of three classes, which differ in a colour. Shape: (count, 32, 32, 3)."""
    pixels = np.random.default_rng(seed).integers(0, 120, (count, 32, 32, 3), dtype=np.uint8)
    for number in range(count):
        pixels[number, ..., number % 3] += 120
    return pixels


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 training images and 12 test images of three classes."""
    folder = tmp_path_factory.mktemp("data") / "colours"
    for part, count in (("train", 48), ("test", 12)):
        for number, pixels in enumerate(noise(count, count)):
            path = folder / part / ("red", "green", "blue")[number % 3] / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return folder


@pytest.fixture(scope="module")
def trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    command = ["vision", "train", *SHORT, "--data", str(photos), "--connection", "2rskip+ln", "--output", str(folder)]
    assert main(command) == 0
    return folder


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_it_learns_and_its_files_describe_the_images(
    trained: Path, photos: Path, capsys: pytest.CaptureFixture, refused: Refused
) -> None:
    assert read_curve(trained / "curve.jsonl")[-1].test_error < 40  # chance: 67
    run = json.loads((trained / "run.json").read_text())
    config = json.loads((trained / "config.json").read_text())
    assert config["classes"] == run["classes"] == ["blue", "green", "red"]
    assert config["images"] == run["images"] and config["images"]["size"] == 32
    assert config["images"]["counts"] == {"train": 48, "test": 12}
    assert run["settings"]["data"] == str(photos) and run["settings"]["nesterov"]
    assert main(["vision", "evaluate", str(trained), "--data", str(photos)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{trained / 'model.safetensors'}: PreAct-ResNet-8, 2rskip+ln, colours test\n")
    assert f"error {read_curve(trained / 'curve.jsonl')[-1].test_error:.2f} % (" in printed
    assert main(["vision", "evaluate", str(trained), "--data", str(photos), "--split", "train", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["count"] == 48
    refused("was trained on your own images, colours: give --data", "vision", "evaluate", str(trained))
    for path in (trained, trained / "checkpoint.pt"):
        message = f"{path} was trained on your own images, which `rskip analyse` can't read: give a model of cifar10 "
        refused(message, "analyse", "ratios", path, "--data", photos)


def test_a_training_resumes_with_its_images_wherever_they_are(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    command = ("train", *SHORT, "--connection", "1xskip", "--output")
    stopped = tmp_path / "stopped"

    class Stop(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise Stop

    with monkeypatch.context() as context:
        context.setattr(LOOP, "evaluate", stop)
        with pytest.raises(Stop):
            main(["vision", *command, str(stopped), "--data", str(photos)])
    moved = tmp_path / "elsewhere" / "colours"
    moved.parent.mkdir()
    moved.symlink_to(photos)
    (tmp_path / "other").symlink_to(photos / "train")  # split otherwise
    message = "from a training run with other settings (images: the content has changed since the earlier run)"
    refused(message, "vision", *command, str(stopped), "--data", str(tmp_path / "other"))
    assert main(["vision", *command, str(stopped), "--data", str(moved)]) == 0
    assert main(["vision", *command, str(tmp_path / "whole"), "--data", str(photos)]) == 0
    for name, tensor in tensors(tmp_path / "whole").items():
        assert torch.equal(tensors(stopped)[name], tensor), name


def test_a_resnet_of_torchvision_on_larger_images(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture, refused: Refused
) -> None:
    command = ["train", "--model", "resnet18", "--connection", "2rskip+ln", "--size", "72", "--precision", "float32"]
    command += ["--iterations", "2", "--batch-size", "6", "--data", str(photos), "--output", str(tmp_path)]
    assert main(["vision", *command, "--no-flip", "--probe-every", "1"]) == 0
    assert "resnet18, 2rskip+ln, colours: test error" in capsys.readouterr().out
    classifier = Classifier.from_pretrained(tmp_path)
    assert classifier.config == {"name": "resnet18", "connection": "2rskip+ln", "num_classes": 3}
    pixels = classifier.transforms()(Image.new("RGB", (500, 300)))
    assert pixels.shape == (3, 72, 72) and classifier.transforms().stored_size == 82
    assert main(["vision", "evaluate", str(tmp_path), "--data", str(photos), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == read_curve(tmp_path / "curve.jsonl")[-1].test_error
    refused("--depth is for model preact_resnet or vit, but model is resnet18", "vision", *command, "--depth", "20")
    refused("size is 32: expected at least 64 for resnet18", "vision", *command, "--size", "32")


@pytest.mark.parametrize(
    ("images", "said", "expected"),
    [
        (50_000, {}, {"batch_size": 128, "epochs": 30, "lr": 0.1}),
        (5_000, {}, {"batch_size": 128, "epochs": 95, "lr": 0.1}),
        (1_000, {}, {"batch_size": 32, "epochs": 212, "lr": 0.025}),
        (10, {}, {"batch_size": 32, "epochs": 300, "lr": 0.025}),
        (10**6, {"model": "resnet18"}, {"batch_size": 32, "epochs": 30, "lr": 0.025}),
        (50_000, {"batch_size": 64, "iterations": 9}, {"lr": 0.05}),
        (50_000, {"lr": 0.0005}, {"batch_size": 128, "epochs": 30, "warmup_lr": 0.000025}),
    ],
)
def test_the_schedule_is_chosen_by_the_number_of_images(
    images: int, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    rest = {"schedule": "one_cycle", "nesterov": True, "weight_decay": 5e-4}
    assert chosen_schedule(images, said) == {"warmup_lr": expected.get("lr", 0.0) / 20, **rest, **expected}
    assert chosen_schedule(images, {"schedule": "step", "epochs": 1}).keys() == {"batch_size"}


def test_mistakes_are_one_line(tmp_path: Path, refused: Refused) -> None:
    output = ("--output", str(tmp_path / "out"))
    refused("no such folder or file: expected your own", "vision", "train", "--data", str(tmp_path / "none"), *output)
    (tmp_path / "empty").mkdir()
    problem = "it has no class folders and no dataset"
    neither = f"{tmp_path / 'empty'}: {problem}: expected your own images (FOLDER/CLASS/"
    refused(neither, "vision", "train", "--data", str(tmp_path / "empty"), *output)
    refused("holds no class folders", "vision", "train", "--dataset", "images", "--data", tmp_path / "empty", *output)
    photos = tmp_path / "photos"
    for name in "ab":
        (photos / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (32, 32), (number, 0, 0)).save(photos / name / f"{number}.png")
    recipe = tmp_path / "mine.yaml"
    own = f"connection: 1xskip, data: {tmp_path / 'empty'}, epochs: 1"
    recipe.write_text(f"kind: vision\ntrain: {{{own}, schedule: one_cycle, lr: 0.005}}\n")
    refused("warmup_lr is 0.01: expected at most lr, 0.005", "vision", "train", str(recipe), *output)
    recipe.write_text(f"kind: vision\ntrain: {{{own}}}\n")
    refused("empty holds no class folders", "vision", "train", str(recipe), *output)
    other = ("--data", str(photos / "none"))
    refused("none: no such folder", "vision", "train", str(recipe), *other, *output)
    inside = ("--output", str(photos / "run"), "--epochs", "1")
    refused("is in the folder of the data", "vision", "train", "--data", str(photos), *inside)
    refused("--download is only for a dataset", "vision", "train", "--data", str(photos), "--download", *output)
    own = ("--dataset", "images", "--data", str(tmp_path / "empty"))
    refused("--download is only for a dataset", "vision", "train", *own, "--download", *output)
    refused("data is missing", "vision", "train", "--dataset", "images", "--epochs", "1", *output)
    refused("--model is resnet18, which is for your own images", "vision", "train", "--model", "resnet18", *output)
