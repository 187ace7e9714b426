"""Files with changed bytes or values."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rskip.corpora import read_own_corpus
from rskip.corpora.formats import TextFile
from rskip.corpora.inspection import inspect_data
from rskip.corpora.own_text import Table
from rskip.files.images import read_image
from rskip.translation import Translator
from tests.corpora.mmap_files import mmap_files
from tests.fuzz.contract import holds
from tests.fuzz.values import given, values

ROOT = Path(__file__).parents[2]
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


KINDS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM")


@given(st.sampled_from(KINDS), damages, damages)
def test_pictures(kind: str, first: Damage, second: Damage) -> None:
    image, memory = Image.effect_noise((40, 30), 90).convert("RGB"), io.BytesIO()
    image.save(memory, kind)
    found = holds(read_image, io.BytesIO(damaged(damaged(memory.getvalue(), first), second)))
    assert isinstance(found, (Image.Image, ValueError))


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
