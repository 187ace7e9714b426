"""Models read back from what trainings and publishing write."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

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


def finished(built: PreActResNet, **changes: Any) -> dict[str, Any]:
    """What model.pt holds."""
    return {
        "config": built.config, "dataset": "cifar10", "model": built.state_dict(), "iteration": 64_000, **changes
    }  # fmt: skip


def unfinished(model: PreActResNet) -> dict[str, Any]:
    """What checkpoint.pt holds, as far as it is read here."""
    settings = {name: value for name, value in model.config.items() if name != "num_classes"}
    return {
        "settings": {**settings, "dataset": "cifar100", "epochs": 3, "iterations": None},
        "iteration": 500,
        "iterations": 1173,
        "model": model.state_dict(),
        "optimiser": {"state": {}},
    }


def publish(folder: Path, state: dict[str, Tensor], **config: Any) -> Path:
    write_model(folder, Checkpoint(model=state, config={"task": "vision", **config}))
    return folder


def same(found: PreActResNet, model: PreActResNet) -> bool:
    with torch.inference_mode():
        return not found.training and torch.equal(found(IMAGES), model(IMAGES))


def test_every_form_gives_the_same_model(model, tmp_path):
    run, part = tmp_path / "run", tmp_path / "part"
    run.mkdir()
    part.mkdir()
    torch.save(unfinished(model), part / "checkpoint.pt")
    torch.save(unfinished(model), run / "checkpoint.pt")
    torch.save(finished(model), run / "model.pt")
    published = publish(tmp_path / "published", model.state_dict(), model=model.config, dataset="cifar10")

    for path in (run, run / "model.pt"):
        found, description = load_model(path)
        assert same(found, model)
        assert description.path == run / "model.pt"
        assert (description.dataset, description.iteration, description.finished) == ("cifar10", 64_000, True)
        assert description.status == ""
    for path in (part, run / "checkpoint.pt"):
        found, description = load_model(path)
        assert same(found, model)
        assert (description.dataset, description.iteration, description.iterations) == ("cifar100", 500, 1173)
        assert description.status == ", an unfinished training run: iteration 500 of 1,173"
    for path in (published, published / "model.safetensors"):
        found, description = load_model(path)
        assert same(found, model)
        assert (description.name, description.finished) == ("PreAct-ResNet-8, sas:beta_bias=-3", True)
        assert dict(description.config) == model.config == found.config


def test_the_shortcuts_input_is_kept_and_raw_where_nothing_says_so(tmp_path):
    torch.manual_seed(3)
    for shortcut_input in ("raw", "activated"):
        folder = tmp_path / shortcut_input
        built = preact_resnet(8, shortcut_input=shortcut_input).eval()
        published = publish(folder / "published", built.state_dict(), model=built.config, dataset="cifar10")
        torch.save(finished(built), folder / "model.pt")
        torch.save(unfinished(built), folder / "checkpoint.pt")
        for path in (folder / "model.pt", folder / "checkpoint.pt", published):
            found, description = load_model(path)
            assert same(found, built) and dict(description.config) == built.config == found.config
            assert ("shortcut_input" in built.config) == (shortcut_input == "activated")


def test_what_is_expected_of_a_model_is_named_beside_what_it_is(model, tmp_path):
    torch.save(finished(model), tmp_path / "model.pt")
    load_model(tmp_path, expected={"depth": 8, "connection": "sas:beta_bias=-3,alpha_bias=0", "dataset": "cifar10"})
    with pytest.raises(
        ValueError,
        match=r"holds depth 8, connection sas:beta_bias=-3, not the depth 110, connection 2rskip\+ln asked for",
    ):
        load_model(tmp_path, expected={"depth": 110, "connection": "2rskip+ln", "dataset": "cifar10"})
    with pytest.raises(ValueError, match=r"holds dataset cifar10, not the dataset cifar100 asked for"):
        load_model(tmp_path, expected={"depth": 8, "dataset": "cifar100"})
    with pytest.raises(ValueError, match=r"did you mean"):
        load_model(tmp_path, expected={"connection": "2rskp+ln"})


class Surprise:
    """A pickle that makes a folder when it is opened."""

    def __reduce__(self):
        return os.mkdir, ("surprise",)


def test_a_pickle_is_never_run(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(finished(model, config=Surprise()), "model.pt")
    with pytest.raises(ValueError, match="can't be read"):
        load_model(Path("model.pt"))
    assert sorted(os.listdir()) == ["model.pt"]


def test_damaged_and_foreign_files_are_one_line(model, tmp_path):
    path = tmp_path / "model.pt"

    def refused(message: str, path: Path = path) -> None:
        with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)

    state = model.state_dict()
    cut = re.escape("model.pt can't be read: it is truncated, damaged, or not a file of `rskip vision train`")
    torch.save(finished(model), path)
    whole = path.read_bytes()
    for size in (0, 10, 5000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(cut)
    path.write_text("hello")
    refused(cut)
    for content in ([1, 2], torch.zeros(3)):
        torch.save(content, path)
        refused("model.pt is not a file of `rskip vision train`: ")
    wrong = [
        ({"model": state}, "config is missing: expected keys and values"),
        (finished(model, config=3), "config is 3: expected keys and values"),
        (finished(model, dataset="cifar9"), "dataset is 'cifar9': expected cifar10, .* or images .*"),
        (finished(model, iteration=-1), "iteration is -1: expected a whole number, 0 or more"),
        (finished(model, model=3), "model is 3: expected keys and values"),
        (finished(model, model={"conv1.weight": 3}), r"model\.conv1\.weight is 3: expected a Tensor"),
        ({**unfinished(model), "settings": []}, r"settings is \[\]: expected keys and values"),
        ({**unfinished(model), "iterations": "8"}, r"iterations is '8': expected a whole number, 1 or more"),
        ({**unfinished(model), "model": {}}, r"model\.fc\.bias is missing: expected a Tensor"),
    ]
    for content, said in wrong:
        torch.save(content, path)
        refused(rf"model\.pt: {said}; give a file from `rskip vision train`$")
    torch.save({**unfinished(model), "optimiser": {}, "text": "0"}, path)
    refused("model.pt: a checkpoint of the task 'language_modeling', not of vision; use `rskip generate`$")
    torch.save(finished(model, config={**model.config, "depth": "8"}), path)
    refused("model.pt: config.depth is '8': expected a whole number")
    torch.save(finished(model, config={**model.config, "depth": 9}), path)
    refused(r"model.pt: depth is 9: expected 6n\+2 with basic blocks")

    other = "model.pt says PreAct-ResNet-{}, but has the weights of another model: {}"
    torch.save(finished(model, config={**model.config, "depth": 14}), path)
    refused(other.format("14, sas:beta_bias=-3", r"the file has no layer1\.1\..*"))
    torch.save(finished(model, config={**model.config, "connection": "1xskip"}), path)
    refused(other.format("8, 1xskip", r"the file has layer1\.0\.connection\..* too"))
    torch.save(finished(model, config={**model.config, "num_classes": 10}), path)
    refused(other.format("8, sas:beta_bias=-3", r"fc\.weight has the shape \(7, 64\), expected \(10, 64\)"))

    folder = publish(tmp_path / "published", state, model=model.config, dataset="cifar10")
    weights, config = folder / "model.safetensors", folder / "config.json"
    weights.write_bytes(weights.read_bytes()[:-4])
    refused("model.safetensors can't be read as safetensors .*: it is (cut off|truncated)", folder)
    publish(folder, state, model=model.config, dataset="cifar10")
    whole_config = json.loads(config.read_text())
    for content, said in (
        ({**whole_config, "task": "translation"}, "a checkpoint of the task 'translation', not of vision"),
        ({"task": "vision"}, "model is missing"),
        ({**whole_config, "model": {**model.config, "depth": "8"}}, "model.depth is '8': expected a whole number"),
        ({**whole_config, "format": 3}, "has format 3, but this rskip reads formats 1 and 2; install a newer rskip"),
    ):
        config.write_text(json.dumps(content))
        refused(f"config.json: {said}", folder)
    config.write_text("[]")
    refused("config.json: it holds a list: expected keys and values", folder)
    config.write_text("{")
    refused("config.json: not valid JSON", folder)
    config.unlink()
    refused("config.json is missing: model.safetensors needs it$", folder)


def test_where_there_is_no_model(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model .*none: expected the folder of a training run"):
        load_model(tmp_path / "none")
    (tmp_path / "training").mkdir()
    with pytest.raises(FileNotFoundError, match=r"holds no model: expected .* in it$"):
        load_model(tmp_path)
    torch.save(finished(model), tmp_path / "training" / "model.pt")
    with pytest.raises(FileNotFoundError, match=r"holds no model: .*; there is one in .*training$"):
        load_model(tmp_path)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ValueError, match=r"model.onnx: expected model.pt, checkpoint.pt, model.safetensors"):
        load_model(tmp_path / "model.onnx")
