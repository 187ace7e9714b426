"""Reading and writing checkpoints.json: what is there comes back, and each bad entry is one line that names it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rskip.settings.errors import SettingError, shown_key
from rskip.zoo.registry import ModelFile, read_entry, read_registry, registry_file, release_url, write_registry

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
            "dataset": "cifar10",
            "split": "test",
            "metric": "error",
            "value": 8.5,
            "spread": 0.5,
            "seeds": [1, 2],
            "signature": None,
            "of": "run",
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
}
FIGURE = ("figures", 0)
DIGITS = "expected 40 hexadecimal digits, or null"
PATHS = "expected a path within the folder: model.safetensors, or one that ends in .json, .txt, .bpe or .model"
# the key that is changed, to what (`...`: it is left out), and what is said of it
WRONG: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("licence",), ..., "licence is missing: expected text"),
    (("license",), "MIT", "unknown key license; did you mean licence?"),
    (("a\nb",), 1, "unknown key 'a\\nb'; the closest of 19 keys: "),
    (("name",), NAME, "name is a key: expected the model's name only before its entry"),
    (("task",), 5, "task is 5: expected text"),
    (("connection",), "", "connection is '': expected text"),
    (("parameters",), 0, "parameters is 0: expected a whole number, 1 or more"),
    (("parameters",), True, "parameters is True: expected a whole number, 1 or more"),
    *((("folder",), path, f"folder is {path!r}: expected a relative path, or null") for path in (
        "/etc", "checkpoints/../..", "a//b", "a/", "~me", "C:\\models", "a\n", 5,
    )),
    *((("url",), url, f"url is {url!r}: expected an https:// address without spaces, or null") for url in (
        "https://example.org/a b", "https://example.org\n", "ftp://example.org",
    )),
    (("files",), [], "files is []: expected keys and values"),
    (("files", "model.safetensors"), ..., "files has no model.safetensors: expected the files that vision reads"),
    (("files", "config.json"), ..., "files has no config.json: expected the files that vision reads"),
    (("task",), "translation", "files has no text/pipeline.json: expected the files that translation reads"),
    *((("files", path), FILE, f"files.{shown_key(path)} is a key: {PATHS}") for path in (
        "model.pt", "other.safetensors", "b/model.safetensors", "../x.json", "a\nb.txt", "a\\b.json",
    )),
    (("files", "config.json"), 24, "files.config.json is 24: expected keys and values"),
    (("files", "config.json", "size"), 0, "files.config.json.size is 0: expected a whole number of bytes, 1 or more"),
    (("files", "config.json", "sha256"), "A" * 64, f"files.config.json.sha256 is '{'A' * 64}': expected 64"),
    (("files", "config.json", "md5"), "0", "unknown key files.config.json.md5; known keys: size, sha256"),
    (("dtype",), "int8", "dtype is 'int8': expected bfloat16, float16 or float32"),
    (("figures",), [], "figures is []: expected a list of "),
    (("figures",), 39.9, "figures is 39.9: expected a list of "),
    ((*FIGURE, "value"), "8.5", "figures[0].value is '8.5': expected a number"),
    ((*FIGURE, "spread"), None, "figures[0].spread is None: expected a number of 0 or more, since there"),
    ((*FIGURE, "spread"), -0.1, "figures[0].spread is -0.1: expected a number, 0 or more, or null"),
    ((*FIGURE, "seeds"), [1], "figures[0].spread is 0.5: expected null, since there is one seed"),
    ((*FIGURE, "seeds"), [1, 1], "figures[0].seeds is [1, 1]: expected different whole numbers"),
    ((*FIGURE, "seeds"), [], "figures[0].seeds is []: expected a list of a whole number"),
    ((*FIGURE, "of"), "paper", "figures[0].of is 'paper': expected published weights or run"),
    ((*FIGURE, "metric"), ..., "figures[0].metric is missing: expected text"),
    (("recipe",), "../recipe.yaml", "recipe is '../recipe.yaml': expected a relative path"),
    (("seed",), ..., "seed is missing: expected a whole number"),
    (("checkpoint_sha256",), "2", "checkpoint_sha256 is '2': expected 64 hexadecimal digits"),
    (("commit",), "a" * 7, f"commit is 'aaaaaaa': {DIGITS}"),
    (("commit",), "a" * 40 + "\n", f"commit is '{'a' * 40}\\n': {DIGITS}"),
    (("uncommitted_changes",), "no", "uncommitted_changes is 'no': expected true or false, or null"),
    (("overrides",), [], "overrides is []: expected keys and values"),
    (("paper",), None, "paper is None: expected keys and values"),
    (("paper", "title"), 5, "paper.title is 5: expected text"),
    (("paper", "author"), "me", "unknown key paper.author; did you mean authors?"),
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


def test_fields_with_a_default_may_be_left_out() -> None:
    assert read_entry(NAME, changed(("overrides",), ...)).overrides == {}
    assert read_entry(NAME, changed(("uncommitted_changes",), ...)).uncommitted_changes is None


def test_a_bad_entry_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    not_in_json = [((*FIGURE, "value"), value, "expected a number") for value in (float("nan"), 10**400)]
    for where, value, message in [*WRONG, *not_in_json]:
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
        ("<html>", f"{path}: not valid JSON: Expecting value"),
        ("\xff", f"{path}: not valid UTF-8"),
        ("[" * 100_000, f"{path}: nested more than 100 levels deep"),
        ("[]", f"{path}: not a registry of models: it has no format"),
        ('{"models": {}}', "it has no format"),
        ('{"format": "1", "models": {}}', "it has no format"),
        ('{"format": 3}', "has format 3, but this rskip reads format 2; install a newer rskip"),
        ('{"format": 1}', "has the keys format: expected format, url and models"),
        ('{"format": 1, "models": []}', "expected format, url and models, with one entry per model"),
        ('{"format": 1, "models": {}, "a\\nb": 1}', "has the keys format, models, 'a\\nb': expected"),
        ('{"format": 1, "models": {"a.b": 1, "a.b": 2}}', "key a.b is given twice: expected once"),
        ('{"format": 1, "models": {"a.b": null}}', "checkpoints.json: a.b: it holds nothing: expected keys and values"),
        ('{"format": 1, "models": {"a\\nb": null}}', "checkpoints.json: 'a\\nb': it holds nothing"),
    ):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(SettingError) as caught:
            read_registry(path)
        assert message in str(caught.value) and "\n" not in str(caught.value), text[:50]


def test_the_address_of_a_release_is_kept_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    for url in (None, "https://example.org/v1"):
        write_registry(path, {}, url=url)
        assert (release_url(path), read_registry(path)) == (url, {})
    write_registry(path, {}, url="example.org")
    with pytest.raises(SettingError, match=r"json: url is 'example\.org': expected an https:// address without spaces"):
        release_url(path)


def test_the_registry_of_a_checkout_is_in_its_root(root: Path) -> None:
    assert registry_file() == root / "checkpoints.json"


def test_an_entry_of_the_first_format_is_read_as_one_of_now(tmp_path: Path) -> None:
    """It named its recipe by a path, its seed in the first metric, and the records of all seeds."""
    path = tmp_path / "checkpoints.json"
    old = {
        **{key: value for key, value in CONTENT.items() if key not in ("seed", "checkpoint_sha256")},
        "recipe": "recipes/cifar10_preact20_sas.yaml",
        "records": [f"results/cifar10_preact20_sas/{seed}.json" for seed in (1, 2)],
    }
    path.write_text(json.dumps({"format": 1, "models": {NAME: old}}))
    entry = read_registry(path)[NAME]
    expected = {**CONTENT, "recipe": "cifar10_preact20_sas", "checkpoint_sha256": None}
    assert entry == read_entry(NAME, expected)
    write_registry(path, {NAME: entry})
    assert json.loads(path.read_text(encoding="utf-8")) == {"format": 2, "url": None, "models": {NAME: expected}}
