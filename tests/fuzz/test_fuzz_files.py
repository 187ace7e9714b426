"""Files with changed bytes or values."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rskip.analysis.trace import read_trace
from rskip.captioning.config import CaptioningConfig
from rskip.captioning.features import Features, FeatureStore, FeatureWriter
from rskip.captioning.model import CaptioningTransformer
from rskip.captioning.model_file import CONFIG, load_captioning_model
from rskip.checkpoint import Checkpoint, average_checkpoints, read_checkpoint, write_checkpoint
from rskip.checkpoint.fairseq_file import read_validation
from rskip.corpora import read_own_corpus
from rskip.corpora.formats import TextFile
from rskip.corpora.inspection import inspect_data
from rskip.corpora.own_text import Table
from rskip.files.images import read_image
from rskip.records import Record, read_record
from rskip.text import Dictionary
from rskip.translation import Translator
from rskip.vision import preact_resnet
from rskip.vision.model_file import load_model
from rskip.zoo.registry import read_registry
from tests.corpora.mmap_files import mmap_files
from tests.fuzz.contract import holds
from tests.fuzz.values import given, values

ROOT = Path(__file__).parents[2]
OWN_IMAGES = {
    "name": "photos", "size": 32, "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2], "counts": {"train": 9, "valid": 1},
    "sha256": {"train": "1", "valid": "2"},
}  # fmt: skip
Damage = tuple[str, float, int]
damages = st.tuples(st.sampled_from(["flip", "cut", "insert", "remove", "same"]), st.floats(0, 1), st.integers(0, 255))


def damaged(content: bytes, damage: Damage) -> bytes:
    """The content with a bit changed, its end cut off, or a byte more or fewer."""
    kind, place, number = damage
    at = min(int(place * len(content)), max(len(content) - 1, 0))
    if kind == "flip" and content:
        return content[:at] + bytes([content[at] ^ (1 << number % 8)]) + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "insert":
        return content[:at] + bytes([number]) + content[at:]
    return content[:at] + content[at + number :] if kind == "remove" else content


@st.composite
def edits(draw: st.DrawFn) -> tuple[list[float], str, Any]:
    """Which value of a JSON document is replaced, removed or joined by another key, and by what."""
    path = draw(st.lists(st.floats(0, 0.999), min_size=1, max_size=4))
    return path, draw(st.sampled_from(["replace", "replace", "remove", "add"])), draw(values)


def edited(content: Any, edit: tuple[list[float], str, Any]) -> Any:
    path, kind, value = edit
    content = inner = copy.deepcopy(content)
    for number, place in enumerate(path):
        if not isinstance(inner, (dict, list)) or not inner:
            break
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = keys[int(place * len(keys))]
        if number + 1 < len(path) and isinstance(inner[key], (dict, list)) and inner[key]:
            inner = inner[key]
            continue
        if kind == "remove":
            del inner[key]
        elif kind == "add" and isinstance(inner, dict):
            inner[f"{key}x"] = value
        else:
            inner[key] = value
        break
    return content


def in_json(content: Any) -> str:
    try:
        return json.dumps(content)
    except ValueError:  # a number of more digits than Python writes
        return "1" * 5000


def translates(folder: Path) -> Any:
    """What the model of a folder says, or how it is refused."""
    translator = holds(Translator.from_pretrained, folder)
    if not isinstance(translator, Translator):
        return translator
    found = holds(translator.translate, ["a ab c .", ""], beam=2)
    return found if isinstance(found, Exception) else [each.text for each in found]


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "copied"))


def rewritten(copied: Path, **metadata: str) -> None:
    """The weights with other metadata."""
    path = copied / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        before = file.metadata()
    save_file(load_file(path), path, metadata={**before, **metadata})


def config_of(copied: Path) -> dict[str, Any]:
    with safe_open(copied / "model.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["config"])


def test_what_a_model_says_of_itself(copied: Path) -> None:
    config = config_of(copied)
    more = {"dropout": 0.1, "max_source_positions": 1024, "activation_fn": "relu"}
    known = {**config, "model": {**config["model"], **more}}

    @example({"decoder_layers": 10**7})
    @example({"connection": "9999999rskip+ln", "encoder_connection": None, "decoder_connection": None})
    @example({"encoder_layers": "8"})
    @example({"max_source_positions": float("nan")})
    @example({"decoder_ffn_embed_dim": -1})
    @given(edits() | st.dictionaries(st.sampled_from(sorted(known["model"])), values, max_size=2))
    def says(change: Any) -> None:
        model = known["model"] | change if isinstance(change, dict) else {}
        rewritten(copied, config=in_json({**known, "model": model} if model else edited(known, change)))
        translates(copied)

    says()
    wrong = {"config": "[" * 9000, "averaged_from": "3", "format": "x", "tied": '{"a": "b"}'}
    for name, text in (*wrong.items(), ("tied", "[1]")):
        rewritten(copied, **{"config": json.dumps(config), name: text})
        assert isinstance(translates(copied), ValueError)


def test_weights_of_other_types_are_refused(copied: Path) -> None:
    path = copied / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = {name: value for name, value in file.metadata().items() if name != "crc32"}
    weights, expected = load_file(path), translates(copied)
    for dtype in (torch.bool, torch.int8, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64):
        save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, path, metadata=metadata)
        assert isinstance(translates(copied), ValueError), dtype
    save_file({name: tensor.double() for name, tensor in weights.items()}, path, metadata=metadata)
    assert translates(copied) == expected
    save_file({name: torch.tensor(1.0) for name in weights}, path, metadata=metadata)
    assert isinstance(translates(copied), ValueError)


@pytest.mark.parametrize("name", ["dict.en.txt", "text/codes.bpe", "text/pipeline.json", "model.safetensors"])
def test_bytes_of_a_models_files(name: str, copied: Path) -> None:
    whole = (copied / name).read_bytes()

    @example(("flip", 0.3, 1))
    @given(damages)
    def changed(damage: Damage) -> None:
        (copied / name).write_bytes(damaged(whole, damage))
        translates(copied)

    changed()


def test_values_of_a_pipeline(copied: Path) -> None:
    path = copied / "text/pipeline.json"
    content = json.loads(path.read_text())

    @example(([0.99], "replace", []))
    @given(edits())
    def changed(edit: Any) -> None:
        path.write_text(in_json(edited(content, edit)))
        translates(copied)

    changed()
    (copied / "text/pipeline.json").write_text(json.dumps(content))
    for version in ("9.9", "0.2.1", "x", "", "1e5"):
        (copied / "text/codes.bpe").write_text(f"#version: {version}\na b\n")
        assert isinstance(translates(copied), ValueError), version


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def test_a_pt_file_is_as_it_was_written_or_refused(model: Path, tmp_path: Path) -> None:
    """131 of 300 files with a changed bit used to load."""
    path = tmp_path / "model.pt"
    whole = (model.parent / "pt" / "model.pt").read_bytes()
    path.write_bytes(whole)
    expected = read_checkpoint(path)

    @given(damages)
    def changed(damage: Damage) -> None:
        path.write_bytes(damaged(whole, damage))
        found = holds(read_checkpoint, path)
        assert isinstance(found, ValueError) or (equal(found.model, expected.model) and found.config == expected.config)

    changed()


PT = {
    "cfg": {"model": {"arch": "x", "connection": "2rskip+ln"}, "task": {"_name": "translation"}},
    "model": {"a": torch.ones(2)}, "extra_state": {"val_loss": 3.0}, "args": None, "averaged_from": ["a.pt"],
}  # fmt: skip


@given(edits())
def test_values_of_a_pt_file(edit: Any) -> None:
    memory = Path("changed.pt")
    try:
        torch.save(edited(PT, edit), memory)
    except (UnicodeEncodeError, OverflowError):  # what pickle has no form for
        return
    for read in (read_checkpoint, read_validation, lambda path: average_checkpoints([path, path])):
        holds(read, memory)


OWN_TEXT = {
    "tsv": b"en\tde\nA dog.\tEin Hund.\nA cat 7.\tEine Katze 7.\n",
    "jsonl": b'{"en": "A dog.", "de": "Ein Hund."}\n{"en": "A cat 7.", "de": "Eine Katze 7."}\n',
}


@pytest.mark.parametrize("form", list(OWN_TEXT))
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_bytes_of_the_users_own_text(form: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path, whole = tmp_path / "text", pack(OWN_TEXT[form])
    texts = {"train": [Table(TextFile(path))]}
    path.write_bytes(whole)
    assert holds(read_own_corpus, texts, source="en", target="de").texts["train"][0].words == (5, 5)

    @given(damages, share=3)
    def changed(damage: Damage) -> None:
        path.write_bytes(damaged(whole, damage))
        holds(read_own_corpus, texts, source="en", target="de")

    changed()


@example(([0.0, 0.0], "replace", "\ud800"))
@given(edits())
def test_values_of_the_users_own_rows(edit: Any) -> None:
    rows = [json.loads(line) for line in OWN_TEXT["jsonl"].splitlines()]
    content = edited([*rows, {"translation": rows[0]}], edit)
    lines = map(in_json, content) if isinstance(content, list) else [in_json(content)]
    path = Path("rows.jsonl")
    path.write_text("".join(f"{line}\n" for line in lines))
    holds(read_own_corpus, {"train": [Table(TextFile(path))]}, source="en", target="de")


@pytest.fixture
def graphs(model: Path, tmp_path: Path) -> Path:
    """A folder that says of itself that it holds ONNX graphs."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "graphs"
    folder.mkdir()
    for name in ("dict.en.txt", "dict.de.txt"):
        shutil.copy(model / name, folder)
    for name in ("encoder.onnx", "step.onnx"):
        (folder / name).write_bytes(b"\x08\x07")
    counts = dict.fromkeys(("opset", "layers", "heads", "head_features", "trained_source_positions"), 8)
    indices = {"first_position": 2, "padding_index": 1, "start_index": 2, "end_index": 2, "unknown_index": 3}
    content = {
        "format": 1, "precision": "float32", "source_language": "en", "target_language": "de", "text": "tokens",
        "encoder_connection": "2rskip+ln", "decoder_connection": "2rskip+ln", "source_vocabulary": 12,
        "target_vocabulary": 12, "max_source_positions": None, "max_target_positions": 9, **counts, **indices,
        "files": {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()},
    }  # fmt: skip
    (folder / "onnx.json").write_text(json.dumps(content))
    return folder


def test_folders_of_graphs(graphs: Path) -> None:
    content = json.loads((graphs / "onnx.json").read_text())

    @example(([0.0], "same", 0))
    @given(edits())
    def changed(edit: Any) -> None:
        (graphs / "onnx.json").write_text(in_json(edited(content, edit)))
        assert isinstance(translates(graphs), (ValueError, OSError))

    changed()


KINDS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM")


@given(st.sampled_from(KINDS), damages, damages)
def test_pictures(kind: str, first: Damage, second: Damage) -> None:
    image, memory = Image.effect_noise((40, 30), 90).convert("RGB"), io.BytesIO()
    image.save(memory, kind)
    found = holds(read_image, io.BytesIO(damaged(damaged(memory.getvalue(), first), second)))
    assert isinstance(found, (Image.Image, ValueError))


def documents() -> Iterator[tuple[str, Path, Callable[[Path], Any]]]:
    yield "record", sorted((ROOT / "study/results/runs").glob("multi30k*/*/*.json"))[0], read_record
    yield "registry", ROOT / "checkpoints.json", read_registry


@pytest.mark.parametrize(("path", "read"), [pytest.param(path, read, id=name) for name, path, read in documents()])
def test_documents(path: Path, read: Callable[[Path], Any], tmp_path: Path) -> None:
    whole, changed = path.read_bytes(), tmp_path / path.name
    content = json.loads(whole)

    @given(edits() | damages)
    def changed_values(edit: Any) -> None:
        if isinstance(edit[0], str):
            changed.write_bytes(damaged(whole, edit))
        else:
            changed.write_text(in_json(edited(content, edit)))
        found = holds(read, changed)
        assert isinstance(found, (Record, dict, ValueError))

    changed_values()


@pytest.fixture
def images_model(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    resnet = preact_resnet(8, "2rskip+ln")
    save_file({name: tensor.contiguous() for name, tensor in resnet.state_dict().items()}, folder / "model.safetensors")
    own = {"dataset": "images", "classes": list("abcdefghij"), "images": OWN_IMAGES}
    content = {"format": 1, "task": "vision", "model": resnet.config, **own}
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_models_of_images(images_model: Path) -> None:
    path = images_model / "config.json"
    content = json.loads(path.read_text())
    weights = (images_model / "model.safetensors").read_bytes()

    @example(([0.5, 0.0], "replace", 10**9 + 2))
    @given(edits())
    def values_changed(edit: Any) -> None:
        path.write_text(in_json(edited(content, edit)))
        holds(load_model, images_model)

    @given(damages)
    def weights_changed(damage: Damage) -> None:
        (images_model / "model.safetensors").write_bytes(damaged(weights[:9000], damage) + weights[9000:])
        holds(load_model, images_model)

    values_changed()
    path.write_text(json.dumps(content))
    weights_changed()
    model = {"fc.bias": torch.ones(10)}
    own = {name: content[name] for name in ("dataset", "classes", "images")}
    about = {"config": {"task": "vision", "model": content["model"], **own}, "settings": {}, "optimiser": {}}
    training = {**about, "iteration": 3, "iterations": 5, "model": model}

    @given(edits())
    def training_changed(edit: Any) -> None:
        try:
            torch.save(edited(training, edit), path.with_name("checkpoint.pt"))
        except (UnicodeEncodeError, OverflowError):
            return
        holds(load_model, path.with_name("checkpoint.pt"))

    training_changed()


def test_models_of_captions(tmp_path: Path) -> None:
    each = {"embed_dim": 8, "ffn_embed_dim": 8, "layers": 1, "attention_heads": 2}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in each.items()}
    config = CaptioningConfig(vocabulary=6, feature_dim=4, **sizes)
    content = config.to_dict()
    about = {"arch": "x", "task": "captioning", "source_lang": None, "target_lang": None, "model": content}
    checkpoint = Checkpoint(model=CaptioningTransformer(config).state_dict(), config=about)
    write_checkpoint(tmp_path / "model.safetensors", checkpoint)
    Dictionary(["a", "dog"]).save(tmp_path / "dict.txt")

    @example(([0.2], "replace", "8"))
    @given(edits())
    def changed(edit: Any) -> None:
        (tmp_path / CONFIG).write_text(in_json(edited(content, edit)))
        holds(load_captioning_model, tmp_path)

    changed()


def test_stores_of_features(tmp_path: Path) -> None:
    import numpy

    with FeatureWriter(tmp_path / "store", {"backbone": "b", "dim": 3, "dtype": "float16"}) as writer:
        writer.add((name, "0" * 64, Features(numpy.ones((6, 3), numpy.float32), (2, 3))) for name in "ab")
        writer.finish()
    index = tmp_path / "store" / "features.json"
    content = json.loads(index.read_text())

    @given(edits(), damages)
    def changed(edit: Any, damage: Damage) -> None:
        index.write_bytes(damaged(in_json(edited(content, edit)).encode(), damage))
        store = holds(FeatureStore, tmp_path / "store")
        if isinstance(store, FeatureStore):
            holds(lambda: [store[name] for name in store.names])

    changed()


def test_binarised_corpora(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        for language in ("en", "de"):
            mmap_files(tmp_path / f"{split}.en-de.{language}", [[4, 5, 2], [5, 2], [4, 4, 4, 2]])
            (tmp_path / f"dict.{language}.txt").write_text("dog 1\nruns 1\n")
    wholes = {path: path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.is_file()}

    @given(st.sampled_from(sorted(wholes)), damages)
    def changed(path: Path, damage: Damage) -> None:
        path.write_bytes(damaged(wholes[path], damage))
        try:
            holds(inspect_data, tmp_path)
        finally:
            path.write_bytes(wholes[path])

    changed()


def test_traces(tmp_path: Path) -> None:
    line = {"update": 1, "blocks": [{"block": "encoder.layers.0", "x": 1.0, "f": 1.0, "y": 1.0, "gradient": 0.1}]}

    @given(edits(), damages)
    def changed(edit: Any, damage: Damage) -> None:
        (tmp_path / "trace.jsonl").write_bytes(damaged((in_json(edited([line], edit)[:1]) + "\n").encode(), damage))
        holds(read_trace, tmp_path / "trace.jsonl", model="m", seed=1)

    changed()
