"""Reads and writes checkpoints.json, the only description of the published models.

The file is in the root of the repository, and in the installed package. Every field of an entry is checked when the
entry is created. This module imports neither PyTorch nor any model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rskip.files.checksum import sha256_file
from rskip.files.whole import atomic_file
from rskip.settings.check import Checked, convert, to_plain
from rskip.settings.errors import nearest, shown_key
from rskip.settings.paper import Paper
from rskip.settings.text import read_json
from rskip.tasks import find_task

FORMAT = 2
FILE_NAME = "checkpoints.json"
CARD = "README.md"
WEIGHTS = "model.safetensors"
OF_WEIGHTS, OF_RUN = "published weights", "run"

_INSIDE = r"^(?!~)(?!\.{0,2}(/|$))(?!.*/\.{0,2}(/|$))"  # no part of the path is empty, . or ..
_NAMES = r"[^\\:\x00-\x1f]+"

Text = Annotated[str, Meta(pattern=r"\S")]
Url = Annotated[
    str, Meta(pattern=r"^https?://\S+$", extra={"expected": "an http:// or https:// address without spaces"})
]
RelativePath = Annotated[str, Meta(pattern=f"{_INSIDE}{_NAMES}$", extra={"expected": "a relative path"})]
FilePath = Annotated[  # apart from the weights, only files that can't contain a pickle
    str,
    Meta(
        pattern=rf"{_INSIDE}(model\.safetensors|{_NAMES}\.(json|txt|bpe|model))$",
        extra={"expected": f"a path within the folder: {WEIGHTS}, or one that ends in .json, .txt, .bpe or .model"},
    ),
]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", extra={"expected": "64 hexadecimal digits, in lower case"})]


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a model: its size in bytes and its SHA-256 checksum."""

    size: Annotated[int, Meta(ge=1, extra={"expected": "a whole number of bytes, 1 or more"})]
    sha256: Sha256


class ModelScore(Checked, msgspec.Struct, frozen=True, kw_only=True):
    """A score of a model.

    :param dataset: the dataset, such as multi30k-en-de.
    :param split: its split, such as test_2016_flickr.
    :param metric: its name in records, such as sacrebleu or error. BLEU, chrF, error and accuracy are percentages.
    :param value: the score, or the mean over `seeds`.
    :param spread: sample standard deviation over `seeds`; None for one seed.
    :param seeds: the seeds of the runs.
    :param signature: the scorer's signature, if it has one.
    :param of: "published weights": the score of the published file; "run": the score of the runs at their end, before
        weights were stored for publishing.
    :raises SettingError: a field has a wrong value.
    """

    dataset: Text
    split: Text
    metric: Text
    value: float
    spread: Annotated[float, Meta(ge=0)] | None
    seeds: Annotated[tuple[int, ...], Meta(min_length=1)]
    signature: Text | None
    of: Literal["published weights", "run"]


class ModelEntry(Checked, msgspec.Struct, frozen=True, kw_only=True):
    """A pretrained model.

    :param name: ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT].
    :param task: name of its task in `rskip.tasks.tasks()`.
    :param architecture: the architecture, such as transformer_tiny or preact_resnet20.
    :param connection: the canonical spec of its residual connections.
    :param parameters: number of parameters.
    :param folder: the folder of its files in the repository; None if they are not in it.
    :param url: base address of its files, if it is not that of the release; None: no own address.
    :param files: size and checksum of each file, by its path in the folder with "/". model.safetensors has the weights.
    :param dtype: number format of the stored weights.
    :param figures: the model's scores.
    :param recipe: the run's `recipe/variant`.
    :param overrides: the settings that were overridden.
    :param seed: the seed of the weights.
    :param checkpoint_sha256: checksum of the trained file that the weights were made from; None if unknown.
    :param commit: commit of the published run; None if it was made outside a checkout.
    :param uncommitted_changes: whether the checkout had changes after that commit; None if unknown.
    :param licence: licence of code and weights.
    :param data_terms: terms and origin of the training data.
    :param paper: the paper of its connection.
    :raises SettingError: a field has a wrong value.
    """

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-z][a-z0-9_-]*(\.[a-z0-9][a-z0-9_-]*){1,3}$",
            extra={"expected": "a name such as transformer_tiny_2rskip_ln.multi30k.en-de"},
        ),
    ]
    task: str
    architecture: Text
    connection: Text
    parameters: Annotated[int, Meta(ge=1)]
    folder: RelativePath | None
    url: Url | None
    files: Mapping[FilePath, ModelFile]
    dtype: Literal["float32", "float16", "bfloat16"]
    figures: Annotated[tuple[ModelScore, ...], Meta(min_length=1)]
    recipe: RelativePath
    overrides: Mapping[str, Any] = {}
    seed: int
    checkpoint_sha256: Sha256 | None = None
    commit: Annotated[str, Meta(pattern="^[0-9a-f]{40}$", extra={"expected": "40 hexadecimal digits"})] | None
    uncommitted_changes: bool | None = None
    licence: Text
    data_terms: Text
    paper: Paper

    @property
    def size(self) -> int:
        """The size of all its files in bytes."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        """The entry without its name, as plain values."""
        content: dict[str, Any] = to_plain(self)
        del content["name"]
        return content


def registry_file() -> Path:
    """The path of checkpoints.json, in the installed package or in the root of the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / FILE_NAME
    return installed if installed.is_file() else package.parent / FILE_NAME


def read_registry(path: Path | None = None) -> dict[str, ModelEntry]:
    """All models by name, in the order of the file. Default path: `registry_file()`.

    :raises FileNotFoundError: the file does not exist.
    :raises SettingError: the file is not JSON, has the format of a later rskip, or has a wrong entry. The error names
        the file, the model and the field.
    """
    path = registry_file() if path is None else path
    return {name: read_entry(name, values, source=path.name) for name, values in _read(path).models.items()}


def release_url(path: Path | None = None) -> str | None:
    """The base address of all models' folders in the release; None before the first release.

    :raises FileNotFoundError, SettingError: as `read_registry`.
    """
    return _read(registry_file() if path is None else path).url


class _Registry(msgspec.Struct, forbid_unknown_fields=True):
    format: Annotated[Literal[2], Meta(extra={"expected": "2; install a newer rskip if it is larger"})]
    models: dict[str, Any]
    url: Url | None = None


def _read(path: Path) -> _Registry:
    return convert(read_json(path), _Registry, source=str(path))


def read_entry(name: str, content: Any, *, source: str = FILE_NAME) -> ModelEntry:
    """Makes a model's entry from plain values, as in JSON.

    :param source: the beginning of each error, before the model's name.
    :raises SettingError: a value is wrong. The error names the model and the field.
    """
    if isinstance(content, dict):
        content = {**content, "name": name}
    return convert(content, ModelEntry, source=f"{source}: {shown_key(name)}")


def write_registry(path: Path, entries: Mapping[str, ModelEntry], *, url: str | None = None) -> None:
    """Writes the models, sorted by name, atomically. The same models give the same bytes.

    :param url: the address that `release_url` returns.
    """
    content = {"format": FORMAT, "url": url, "models": {name: entries[name].to_json() for name in sorted(entries)}}
    with atomic_file(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def find_model(models: Mapping[str, ModelEntry], name: str) -> ModelEntry:
    """The model of this name.

    :raises ValueError: the name is unknown. The error suggests similar ones.
    """
    if name in models:
        return models[name]
    near = nearest(str(name).lower(), models, count=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise ValueError(f"no pretrained model {name!r}{hint}: `rskip zoo list` lists all {len(models)} models")


def entry_of_weights(path: Path) -> ModelEntry | None:
    """The entry of the model whose weights are this file; None: no model has them."""
    own = sha256_file(path)
    return next((entry for entry in read_registry().values() if entry.files[WEIGHTS].sha256 == own), None)


def list_models(
    pattern: str | Sequence[str] | None = None,
    task: str | None = None,
    connection: str | None = None,
    *,
    models: Mapping[str, ModelEntry] | None = None,
) -> list[str]:
    """The sorted names of pretrained models.

    :param pattern: a shell pattern such as `*.cifar10`, or part of the name (`multi30k`), or several of these. One of
        them must match.
    :param task: translation, vision, captioning, language_modeling or your own.
    :param connection: a spec in any spelling: `2RSKIP+LN` is `2rskip+ln`.
    :param models: models to choose from (default: those of checkpoints.json).
    :raises ValueError: the task is unknown and has no model, or `connection` is not a connection.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    if models is None:
        models = read_registry()
    if task is not None and task not in {entry.task for entry in models.values()}:
        find_task(task)
    if connection is not None:
        from rskip.connections import parse_connection  # imports PyTorch

        connection = str(parse_connection(connection))
    return sorted(
        name
        for name, entry in models.items()
        if (patterns is None or any(_matches(name, each) for each in patterns))
        and task in (None, entry.task)
        and connection in (None, entry.connection)
    )


def _matches(name: str, pattern: str) -> bool:
    pattern = pattern.lower()
    return fnmatchcase(name, pattern) if re.search(r"[*?\[]", pattern) else pattern in name
