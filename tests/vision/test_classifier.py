"""Classes and scores for images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rskip.vision import CifarClassification, Classifier
from rskip.vision.cifar_resnet import PreActResNet, preact_resnet

NAMES = ("heron", "ibis", "jay")


@pytest.fixture(scope="module")
def model() -> PreActResNet:
    torch.manual_seed(1)
    built = preact_resnet(8, "2rskip+ln", 3)
    built(torch.randn(8, 3, 32, 32))  # moves its statistics
    return built.eval()


@pytest.fixture
def published(model: PreActResNet, tmp_path: Path) -> Path:
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    config = {"model": model.config, "dataset": "cifar100", "classes": NAMES}
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "task": "vision", **config}))
    return tmp_path


@pytest.fixture
def pictures() -> np.ndarray:
    """Shape: (4, 32, 32, 3), uint8."""
    return np.random.default_rng(2).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


def test_every_kind_of_image_gets_the_softmax_of_the_models_logits(
    published: Path, model: PreActResNet, pictures: np.ndarray
) -> None:
    classifier = Classifier.from_pretrained(published)
    tensor = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    images = CifarClassification("cifar100")(tensor)
    with torch.inference_mode():
        assert torch.equal(classifier(images), model(images))
        expected = model(images).softmax(1)
    forms: list[Any] = [pictures, list(pictures), tensor, list(tensor), [tensor[0], pictures[1:]]]
    image_module = pytest.importorskip("PIL.Image")
    forms.append([image_module.fromarray(picture) for picture in pictures])
    for form in forms:
        found = classifier.classify(form, batch_size=3)
        assert [each.name for each in found] == [NAMES[number] for number in expected.argmax(1)]
        for each, probabilities in zip(found, expected, strict=True):
            assert each.scores == pytest.approx(dict(zip(NAMES, probabilities.tolist(), strict=True)), abs=1e-6)
            assert list(each.scores.values()) == sorted(each.scores.values(), reverse=True)
            assert each.score == each.scores[each.name] == max(each.scores.values())
    (one,) = classifier.classify(pictures[1])
    assert one.scores == pytest.approx(dict(zip(NAMES, expected[1].tolist(), strict=True)), abs=1e-6)
    assert classifier.classify([]) == []
    for wrong, message in ((pictures[:, :31], "resize it"), ("cat.png", "cat.png: no such file"), ([3], "a int is no")):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            classifier.classify(wrong)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_other_precisions_say_nearly_the_same(published: Path, pictures: np.ndarray, precision: str) -> None:
    assert precision in Classifier.precisions
    classifier = Classifier.from_pretrained(published, precision=precision, device="cpu")
    assert {parameter.dtype for parameter in classifier.parameters()} == {getattr(torch, precision)}
    expected = Classifier.from_pretrained(published).classify(pictures)
    for found, each in zip(classifier.classify(pictures), expected, strict=True):
        assert dict(found.scores) == pytest.approx(dict(each.scores), abs=0.05)
