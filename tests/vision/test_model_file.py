"""Models read back from what trainings and publishing write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rskip.checkpoint import Checkpoint, write_model
from rskip.vision.cifar_resnet import PreActResNet, preact_resnet
from rskip.vision.model_file import load_model

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> PreActResNet:
    """Of depth 8 with another connection than the usual one, its statistics moved."""
    torch.manual_seed(2)
    built = preact_resnet(8, "sas:beta_bias=-3", 7, shortcut="projection")
    built(IMAGES)
    return built.eval()


def unfinished(built: PreActResNet, **changes: Any) -> dict[str, Any]:
    """What checkpoint.pt holds, as far as it is read here."""
    config = {"task": "vision", "model": built.config, "dataset": "cifar100", "classes": list("abcdefg"), **changes}
    content = {"settings": {}, "config": config, "iteration": 500, "iterations": 1173, "optimiser": {"state": {}}}
    return {**content, "model": built.state_dict()}


def publish(folder: Path, built: PreActResNet) -> Path:
    about = {"task": "vision", "model": built.config, "dataset": "cifar10", "classes": list("abcdefg")}
    write_model(folder, Checkpoint(model=built.state_dict(), config=about))
    return folder


def same(found: PreActResNet, model: PreActResNet) -> bool:
    with torch.inference_mode():
        return not found.training and torch.equal(found(IMAGES), model(IMAGES))


def test_every_form_gives_the_same_model(model, tmp_path):
    run, part, killed = publish(tmp_path / "run", model), tmp_path / "part", publish(tmp_path / "killed", model)
    part.mkdir()
    for folder in (run, part, killed):
        torch.save(unfinished(model), folder / "checkpoint.pt")
    (killed / "config.json").unlink()  # which is written last
    for path in (part, killed, run / "checkpoint.pt"):
        found, description = load_model(path)
        assert same(found, model)
        assert (description.dataset, description.iteration, description.iterations) == ("cifar100", 500, 1173)
        assert description.status == ", an unfinished training run: iteration 500 of 1,173"
    for path in (run, run / "model.safetensors"):
        found, description = load_model(path)
        assert same(found, model)
        assert (description.path, description.dataset) == (run / "model.safetensors", "cifar10")
        assert (description.finished, description.status) == (True, "")
        assert description.name == "PreAct-ResNet-8, sas:beta_bias=-3"
        assert dict(description.config) == model.config == found.config


def test_what_is_expected_of_a_model_is_named_beside_what_it_is(model, tmp_path):
    publish(tmp_path, model)
    load_model(tmp_path, expected={"depth": 8, "connection": "sas:beta_bias=-3,alpha_bias=0", "dataset": "cifar10"})
    for expected, message in (
        ({"depth": 110, "connection": "2rskip+ln", "dataset": "cifar10"}, r"depth 8, .*, not the depth 110, .* asked"),
        ({"depth": 8, "dataset": "cifar100"}, "holds dataset cifar10, not the dataset cifar100 asked for"),
        ({"connection": "2rskp+ln"}, "did you mean"),
    ):
        with pytest.raises(ValueError, match=message):
            load_model(tmp_path, expected=expected)


def test_damaged_and_foreign_files_are_one_line(model, tmp_path):
    path = tmp_path / "checkpoint.pt"

    def refused(message: str, path: Path = path) -> None:
        with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)

    torch.save(unfinished(model), path)
    path.write_bytes(path.read_bytes()[:5000])
    refused("checkpoint.pt can't be read: it is truncated")
    torch.save([1, 2], path)
    refused("checkpoint.pt is not a file of `rskip vision train`: ")
    for content, said in (
        ({"model": model.state_dict()}, "config is missing"),
        (unfinished(model, dataset="cifar9"), "dataset is 'cifar9': expected cifar10, .* or images"),
        (unfinished(model, model={**model.config, "depth": "8"}), "model.depth is '8'"),
        (unfinished(model, model={**model.config, "depth": 9}), r"depth is 9: expected 6n\+2"),
        ({**unfinished(model), "config": {"task": "language_modeling"}}, "task 'language_modeling', not of vision"),
    ):
        torch.save(content, path)
        refused(f"checkpoint.pt: .*{said}")
    torch.save(unfinished(model, model={**model.config, "connection": "1xskip"}), path)
    refused(r"says PreAct-ResNet-8, 1xskip, but has the weights of another model: the file has layer1\.0\.connection")

    folder = publish(tmp_path / "published", model)
    config = folder / "config.json"
    whole = json.loads(config.read_text())
    for content, said in (
        ({**whole, "task": "translation"}, "task 'translation', not of vision"),
        ({**whole, "format": 2}, "format is 2: expected 1; install a newer rskip"),
        ({"task": "vision", "classes": whole["classes"]}, "model is missing"),
        ({**whole, "classes": None}, "classes is None: expected a list of text"),
        ({**whole, "clases": []}, "unknown key clases; did you mean classes"),
        ({**whole, "model": {**model.config, "depth": "8"}}, "model.depth is '8': expected a whole number"),
    ):
        config.write_text(json.dumps(content))
        refused(f"config.json: .*{said}", folder)


def test_where_there_is_no_model_one_below_is_named(model, tmp_path):
    publish(tmp_path / "training", model)
    with pytest.raises(FileNotFoundError, match=r"holds no model: .*; there is one in .*training$"):
        load_model(tmp_path)
