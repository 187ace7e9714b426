"""Models by name: what `rskip.load` gives, and what it refuses before anything is opened."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rskip
from rskip.translation import Translator
from rskip.vision.preact_resnet import PreActResNet
from rskip.zoo.entry import ModelEntry

CLASSIFIER = "preact_resnet8_2rskip_ln.cifar10"
TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"
DOG = "A dog runs through the tall grass."
HUND = "Ein Hund rennt durch das hohe Gras."


@pytest.fixture
def in_registry(
    registry: Callable[[ModelEntry], Path], make_entry: Callable[..., ModelEntry], published: Path
) -> Path:
    """The registry has the classifier; gives checkpoints.json."""
    return registry(make_entry(published))


def test_translator_of_the_repository(hub: Path) -> None:
    translator = rskip.load(TRANSLATOR)
    assert isinstance(translator, Translator)
    assert translator(DOG) == HUND
    assert {parameter.dtype for parameter in translator.model.parameters()} == {torch.float32}
    assert not translator.model.training
    assert not hub.exists()


def test_classifier_gives_the_published_models_logits(in_registry: Path, classifier: PreActResNet) -> None:
    model = rskip.load(CLASSIFIER)
    assert not model.training
    assert model.config == classifier.config
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    normalised = torch.stack([(images[:, c] / 255 - mean[c]) / std[c] for c in range(3)], dim=1)
    prepared = model.transforms()(images)
    assert torch.allclose(prepared, normalised, atol=1e-6)
    assert torch.equal(model(prepared), classifier(prepared))
    assert model.classes[3] == "cat" and len(model.classes) == 10


@pytest.mark.parametrize(
    ("dtype", "computed"),
    [(torch.bfloat16, torch.bfloat16), ("bfloat16", torch.bfloat16), ("float16", torch.float16)],
)
def test_dtype(in_registry: Path, classifier: PreActResNet, dtype: Any, computed: torch.dtype) -> None:
    model = rskip.load(CLASSIFIER, dtype=dtype, device=torch.device("cpu"))
    expected = copy.deepcopy(classifier).to(computed)
    for parameter, value in zip(model.parameters(), expected.parameters(), strict=True):
        assert parameter.dtype == computed and torch.equal(parameter, value)
    image = model.transforms()(torch.zeros(1, 3, 32, 32)).to(computed)
    assert torch.equal(model(image), expected(image))


def test_a_translators_dtype_is_its_precision(root: Path) -> None:
    folder = root / "checkpoints/multi30k_en_de_2rskip_ln"
    loaded, own, float32 = (
        rskip.load(TRANSLATOR, dtype="bfloat16"),
        Translator.from_pretrained(folder, precision="bfloat16"),
        rskip.load(TRANSLATOR),
    )
    scores = [each.translate(["A man is sleeping."])[0].hypotheses[0].score for each in (loaded, own, float32)]
    assert scores[0] == scores[1] != scores[2]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "preact_resnet8_2rskip_ln.cifar100", {},
            r"^no pretrained model 'preact_resnet8_2rskip_ln\.cifar100': did you mean preact_resnet8_2rskip_ln\.",
        ),
        (
            CLASSIFIER, {"dtype": "int8"},
            rf"^{CLASSIFIER} can't compute in 'int8': expected one of float32, bfloat16, float16$",
        ),
        (CLASSIFIER, {"dtype": torch.float64}, "can't compute in 'float64': expected one of"),
        (CLASSIFIER, {"device": "gpu"}, r"^the device 'gpu' can't be used, try cpu: Expected one of cpu, cuda"),
        (CLASSIFIER, {"device": 3.5}, r"^the device '3.5' can't be used, try cpu: [^\n]+$"),
        (CLASSIFIER, {"device": "hpu"}, r"^the device 'hpu' can't be used, try cpu: [^\n]+$"),
        (CLASSIFIER, {"device": "meta"}, "^the device 'meta' holds no weights, try cpu$"),
        (CLASSIFIER, {"device": "cuda:99"}, r"^the device 'cuda:99' can't be used, try cpu: [^\n]+$"),
    ],
)  # fmt: skip
def test_refused_before_any_file_is_looked_for(
    in_registry: Path, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("rskip.zoo.loading.model_folder", lambda entry, root: pytest.fail("looks for files"))
    with pytest.raises(ValueError, match=message):
        rskip.load(name, **settings)


def test_translators_dtype(in_registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"'float16': expected one of float32, bfloat16, int8$"):
        rskip.load(TRANSLATOR, dtype=torch.float16)


def test_registry_of_a_later_version(in_registry: Path) -> None:
    content = json.loads(in_registry.read_text())
    in_registry.write_text(json.dumps({**content, "format": 2}))
    with pytest.raises(ValueError, match=r"checkpoints\.json has format 2, .*: upgrade rskip \(pip"):
        rskip.load(CLASSIFIER)


def test_a_config_that_does_not_fit_is_named(
    registry: Callable[[ModelEntry], Path], make_entry: Callable[..., ModelEntry], published: Path
) -> None:
    config = published / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "classes": ["cat"]}))
    registry(make_entry(published))
    with pytest.raises(ValueError, match=rf"^{config} is damaged: its classes are \['cat'\], expected 10 names$"):
        rskip.load(CLASSIFIER)


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("written_by", ["pickle", "torch"])
@pytest.mark.parametrize("task", ["image-classification", "translation"])
def test_pickle_that_is_called_safetensors_runs_nothing(
    registry: Callable[[ModelEntry], Path],
    make_entry: Callable[..., ModelEntry],
    published: Path,
    tmp_path: Path,
    task: str,
    written_by: str,
) -> None:
    """Its sum is in the registry, so it is opened: as safetensors, and not otherwise."""
    weights, victim = published / "model.safetensors", tmp_path / "victim"
    if written_by == "pickle":
        weights.write_bytes(pickle.dumps(Malicious(victim)))
    else:
        torch.save({"model": Malicious(victim)}, weights)
    if task == "translation":
        (published / "text").mkdir()
        for name in ("text/pipeline.json", "dict.de.txt"):
            (published / name).write_text("not reached")
    registry(make_entry(published, task=task))
    (published / "model.pt").write_bytes(weights.read_bytes())
    with pytest.raises(ValueError, match=r"model\.safetensors can't be read as safetensors "):
        rskip.load(CLASSIFIER)
    assert not victim.exists()
    if written_by == "pickle":
        pickle.loads(weights.read_bytes())
    else:
        torch.load(io.BytesIO(weights.read_bytes()), weights_only=False)
    assert victim.exists()  # what a reader of pickles would have done


def test_load_is_found_when_asked_for() -> None:
    assert rskip.load is rskip.zoo.load
    with pytest.raises(AttributeError, match="module 'rskip' has no attribute 'lode'"):
        rskip.lode  # noqa: B018
