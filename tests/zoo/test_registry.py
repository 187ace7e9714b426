"""Reading and writing checkpoints.json: what is there comes back, and each bad entry is one line that names it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rskip.settings.errors import SettingError, shown_key
from rskip.zoo.registry import ModelFile, read_entry, read_registry, write_registry

NAME = "preact_resnet20_sas.cifar10"
FILE = {"size": 24, "sha256": "1" * 64}
CONTENT: dict[str, Any] = {
    "task": "vision",
    "architecture": "preact_resnet20",
    "connection": "sas",
    "parameters": 300_000,
    "folder": "checkpoints/cifar10_preact20/sas",
    "url": "https://example.org/models",
    "files": {"model.safetensors": {"size": 1000, "sha256": "0" * 64}, "config.json": FILE},
    "dtype": "float32",
    "figures": [
        {
            "dataset": "cifar10", "split": "test", "metric": "error", "value": 8.5, "spread": 0.5, "seeds": [1, 2],
            "signature": None, "of": "run",
        }
    ],
    "recipe": "cifar10_preact20/sas",
    "overrides": {"train.lr": 0.2},
    "seed": 1,
    "checkpoint_sha256": "2" * 64,
    "commit": "a" * 40,
    "uncommitted_changes": False,
    "licence": "MIT",
    "data_terms": "no licence stated",
    "paper": {"title": "T", "authors": "A", "url": "https://example.org", "part": None},
}  # fmt: skip
PATHS = "expected a path within the folder: model.safetensors, or one that ends in .json, .txt, .bpe or .model"
# the key that is changed, to what (`...`: it is left out), and what is said of it
WRONG: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("license",), "MIT", "unknown key license; did you mean licence?"),
    *((("folder",), path, f"folder is {path!r}: expected a relative path, or null") for path in (
        "/etc", "checkpoints/../..", "a//b", "a/", "~me", "C:\\models", "a\n", 5,
    )),
    *((("url",), url, f"url is {url!r}: expected an http:// or https:// address without spaces, or null") for url in (
        "https://example.org/a b", "https://example.org\n", "ftp://example.org",
    )),
    *((("files", path), FILE, f"files.{shown_key(path)} is a key: {PATHS}") for path in (
        "model.pt", "other.safetensors", "b/model.safetensors", "../x.json", "a\nb.txt", "a\\b.json",
    )),
    (("files", "config.json", "sha256"), "A" * 64, f"files.config.json.sha256 is '{'A' * 64}': expected 64"),
    (("commit",), "a" * 40 + "\n", f"commit is '{'a' * 40}\\n': expected 40 hexadecimal digits, or null"),
]  # fmt: skip
NAMES = ("resnet", "Resnet.cifar10", "a.b.c.d.e", "a/b.c", "a..b", "_a.b", "a.b\n")


def changed(where: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """CONTENT with one value replaced, or left out where the new one is `...`."""
    content = copy.deepcopy(CONTENT)
    inner: Any = content
    for key in where[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return content


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    entry = read_entry(NAME, CONTENT)
    served = read_entry("z.z", changed(("folder",), None))
    assert (entry.files["config.json"], entry.size) == (ModelFile(size=24, sha256="1" * 64), 1024)
    assert entry.figures[0].seeds == (1, 2)
    write_registry(path, {"z.z": served, NAME: entry})
    assert read_registry(path) == {NAME: entry, "z.z": served}
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content == {"format": 2, "url": None, "models": {NAME: CONTENT, "z.z": changed(("folder",), None)}}
    assert list(content["models"]) == [NAME, "z.z"]
    before = path.read_bytes()
    write_registry(path, read_registry(path))
    assert path.read_bytes() == before


def test_a_bad_entry_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    for where, value, message in WRONG:
        path.write_text(json.dumps({"format": 2, "models": {NAME: changed(where, value)}}))
        with pytest.raises(SettingError) as caught:
            read_registry(path)
        text = str(caught.value)
        assert text.startswith(f"checkpoints.json: {NAME}: ") and "\n" not in text, (where, text)
        assert message in text, (where, text)
    for name in NAMES:
        with pytest.raises(SettingError, match="expected a name such as transformer_tiny_2rskip_ln"):
            read_entry(name, CONTENT)


def test_a_bad_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    for text, message in (
        ("<html>", "not valid JSON"),
        ("[]", "expected keys and values"),
        ('{"format": 3, "models": {}}', "format is 3: expected 2; install a newer rskip"),
        ('{"format": 2, "models": []}', "models is []: expected keys and values"),
        ('{"format": 2, "models": {"a\\nb": null}}', "checkpoints.json: 'a\\nb': it holds nothing"),
    ):
        path.write_text(text)
        with pytest.raises(SettingError) as caught:
            read_registry(path)
        assert message in str(caught.value) and "\n" not in str(caught.value), text
