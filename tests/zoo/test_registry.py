"""Reading and writing checkpoints.json: what is there comes back, and each bad entry is one line that names it."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from rskip.zoo.registry import ModelEntry, ModelFile, read_entry, read_registry, registry_file, write_registry

NAME = "preact_resnet20_sas.cifar10"
CONTENT: dict[str, Any] = {
    "task": "image-classification",
    "architecture": "preact_resnet20",
    "connection": "sas",
    "parameters": 300_000,
    "folder": "checkpoints/cifar10_preact20_sas",
    "url": "https://example.org/models",
    "files": {
        "model.safetensors": {"size": 1000, "sha256": "0" * 64},
        "config.json": {"size": 24, "sha256": "1" * 64},
    },
    "dtype": "float32",
    "figures": [
        {
            "dataset": "cifar10",
            "split": "test",
            "metric": "error",
            "value": 8.5,
            "spread": 0.5,
            "seeds": [1, 2, 3],
            "signature": None,
            "of": "run",
        }
    ],
    "recipe": "recipes/cifar10_preact20_sas.yaml",
    "overrides": {"train.lr": 0.2},
    "records": [f"results/cifar10_preact20_sas/{seed}.json" for seed in (1, 2, 3)],
    "commit": "a" * 40,
    "uncommitted_changes": False,
    "licence": "MIT",
    "data_terms": "no licence stated",
    "paper": {"title": "T", "authors": "A", "url": "https://example.org", "part": None},
}


def changed(where: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """CONTENT with one value replaced, or removed where the new one is `...`."""
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
    write_registry(path, {"z.z": served, NAME: entry})
    assert read_registry(path) == {NAME: entry, "z.z": served}
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content == {"format": 1, "models": {NAME: CONTENT, "z.z": changed(("folder",), None)}}
    assert list(content["models"]) == [NAME, "z.z"]
    before = path.read_bytes()
    write_registry(path, read_registry(path))
    assert path.read_bytes() == before


def test_an_entry_has_its_files_and_their_size() -> None:
    entry = read_entry(NAME, CONTENT)
    assert isinstance(entry, ModelEntry)
    assert entry.files["config.json"] == ModelFile(size=24, sha256="1" * 64)
    assert entry.size == 1024
    assert entry.figures[0].seeds == (1, 2, 3)


def test_fields_with_a_default_may_be_left_out() -> None:
    entry = read_entry(NAME, changed(("overrides",), ...))
    assert entry.overrides == {}
    assert read_entry(NAME, changed(("uncommitted_changes",), ...)).uncommitted_changes is None


FIGURE = ("figures", 0)
BAD = [
    (("licence",), ..., "licence is missing"),
    (("author",), "me", "unknown key author: expected task, architecture"),
    (("task",), "captioning", "task is 'captioning': expected translation or image-classification"),
    (("connection",), "", "connection is '': expected text"),
    (("parameters",), 0, "parameters is 0: expected a whole number of 1 or more"),
    (("parameters",), True, "parameters is True: expected a whole number"),
    (("folder",), "/etc", "folder is '/etc': expected a relative path, or null"),
    (("folder",), "checkpoints/../..", "expected a relative path, or null"),
    (("folder",), "C:\\models", "expected a relative path, or null"),
    (("url",), "https://example.org/a b", "url is 'https://example.org/a b': expected an address that begins with"),
    (("url",), "https://example.org\n", "expected an address that begins with https:// and has no space, or null"),
    (("url",), "ftp://example.org", "url is 'ftp://example.org': expected an address that begins with https://"),
    (("files",), [], "files: expected keys and values"),
    (("files", "model.safetensors"), ..., "files has no model.safetensors"),
    (("files", "model.pt"), {"size": 1, "sha256": "0" * 64}, "files has 'model.pt': expected model.safetensors, and"),
    (("files", "other.safetensors"), {"size": 1, "sha256": "0" * 64}, "files has 'other.safetensors'"),
    (("files", "../x.json"), {"size": 1, "sha256": "0" * 64}, "files has '../x.json': expected paths within"),
    (("files", "config.json"), ..., "files has no config.json: expected it, since image-classification reads it"),
    (("task",), "translation", "files has no text/pipeline.json: expected it, since translation reads it beside"),
    (("files", "a\nb.txt"), {"size": 1, "sha256": "0" * 64}, "files has 'a\\nb.txt': expected paths within"),
    (("files", "a\nb.txt"), {"size": 0, "sha256": "0" * 64}, "files: 'a\\nb.txt': size is 0"),
    (("a\nb",), 1, "unknown key 'a\\nb': expected task, "),
    ((*FIGURE, "value"), 10**400, "expected a finite number"),
    (("files", "config.json"), 24, "files: config.json: expected keys and values"),
    (("files", "config.json", "size"), -1, "files: config.json: size is -1: expected a whole number of bytes"),
    (("files", "config.json", "sha256"), "A" * 64, "expected 64 hexadecimal digits, in lower case"),
    (("files", "config.json", "md5"), "0", "files: config.json: unknown key md5: expected size, sha256"),
    (("dtype",), "int8", "dtype is 'int8': expected float32 or float16 or bfloat16"),
    (("figures",), [], "figures is (): expected a list of 1 figure or more"),
    (("figures",), 39.9, "figures is 39.9: expected a list"),
    ((*FIGURE, "value"), "8.5", "figures: number 1: value is '8.5': expected a finite number"),
    ((*FIGURE, "spread"), None, "spread is None: expected a number of 0 or more, since there are several seeds"),
    ((*FIGURE, "seeds"), [1], "spread is 0.5: expected null, since there is one seed"),
    ((*FIGURE, "seeds"), [1, 1], "seeds is (1, 1): expected a list of different whole numbers"),
    ((*FIGURE, "of"), "paper", "of is 'paper': expected 'published weights' or 'run'"),
    ((*FIGURE, "metric"), ..., "figures: number 1: metric is missing"),
    (("recipe",), "../recipe.yaml", "recipe is '../recipe.yaml': expected a relative path"),
    (("records",), [], "records is (): expected a list of relative paths, 1 or more of them"),
    (("records",), ["/1.json"], "records is ('/1.json',): expected a list of relative paths"),
    (("commit",), "a" * 7, "expected 40 hexadecimal digits, or null"),
    (("uncommitted_changes",), "no", "expected true, false or null"),
    (("overrides",), [], "overrides is (): expected keys and values"),
    (("paper",), None, "paper: expected keys and values"),
    (("paper", "title"), 5, "paper: title is 5: expected text"),
]


@pytest.mark.parametrize(("where", "value", "message"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_entry_is_one_line(tmp_path: Path, where: tuple[str | int, ...], value: Any, message: str) -> None:
    path = tmp_path / "checkpoints.json"
    path.write_text(json.dumps({"format": 1, "models": {NAME: changed(where, value)}}))
    with pytest.raises(ValueError) as caught:
        read_registry(path)
    text = str(caught.value)
    assert text.startswith(f"checkpoints.json: {NAME}: ") and message in text and "\n" not in text


@pytest.mark.parametrize("name", ["resnet", "Resnet.cifar10", "a.b.c.d.e", "a/b.c", "a..b", "transformer", "_a.b"])
def test_a_bad_name_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="expected a name such as transformer_tiny_2rskip_ln"):
        read_entry(name, CONTENT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>", "not a registry of models: Expecting value"),
        ("[]", "not a registry of models: it says no format"),
        ('{"models": {}}', "it says no format"),
        ('{"format": "1", "models": {}}', "it says no format"),
        ('{"format": 2}', "has format 2, but this rskip reads format 1: upgrade rskip (pip install --upgrade rskip)"),
        ('{"format": 1}', "expected the keys format and models"),
        ('{"format": 1, "models": []}', "expected the keys format and models"),
        ('{"format": 1, "models": {}, "more": 1}', "expected the keys format and models"),
        ('{"format": 1, "models": {"a.b": 1, "a.b": 2}}', "a.b is given twice: expected once"),
        ('{"format": 1, "models": {"a.b": null}}', "checkpoints.json: a.b: expected keys and values"),
        ('{"format": 1, "models": {"a\\nb": null}}', "checkpoints.json: 'a\\nb': expected keys and values"),
        ("[" * 100_000, "not a registry of models"),
        ("\xff", "not a registry of models"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "checkpoints.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError) as caught:
        read_registry(path)
    assert message in str(caught.value) and "checkpoints.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_figure_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints.json"
    path.write_text(json.dumps({"format": 1, "models": {NAME: changed((*FIGURE, "value"), float("nan"))}}))
    with pytest.raises(ValueError, match="number 1: value is nan: expected a finite number"):
        read_registry(path)


def test_the_registry_of_a_checkout_is_in_its_root(root: Path) -> None:
    assert registry_file() == root / "checkpoints.json"


def test_the_schema_says_what_the_reader_says(root: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install 'rskip[dev]'")
    schema = json.loads((root / "checkpoints.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def valid(name: str, content: Any) -> bool:
        return bool(validator.is_valid({"format": 1, "models": {name: content}}))

    assert valid(NAME, CONTENT)
    translator = {path: CONTENT["files"]["config.json"] for path in ("model.safetensors", "text/pipeline.json")}
    with_dictionary = {**translator, "dict.de.txt": CONTENT["files"]["config.json"]}
    for files, complete in ((with_dictionary, True), (translator, False)):
        content = {**CONTENT, "task": "translation", "files": files}
        assert valid(NAME, content) is complete
        with nullcontext() if complete else pytest.raises(ValueError, match=r"files has no dict\.\*\.txt"):
            read_entry(NAME, content)
    assert valid(NAME, changed(FIGURE, {**CONTENT["figures"][0], "seeds": [1], "spread": None}))
    accepted = [where for where, value, _ in BAD if valid(NAME, changed(where, value))]
    assert accepted == []
    assert not valid("Resnet.cifar10", CONTENT) and not valid("resnet", CONTENT)
    assert not validator.is_valid({"format": 2, "models": {}})
