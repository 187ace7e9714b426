"""Describes prepared folders: reads, writes and compares their corpus.json, which is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from rskip.corpora.corpus import Corpus, PublishedCorpus
from rskip.corpora.options import PrepareOptions
from rskip.corpora.own_corpus import OwnCorpus
from rskip.files.checksum import sha256_file
from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Whole

RECORD_FILE, CLEANING_FILE = "corpus.json", "cleaning.json"

FORMAT = 1
"""Increases when the same options give other bytes than before."""


T = TypeVar("T")


class State(TypedDict, total=False):
    """The input and options of a folder. Only the keys that rskip reads are declared."""

    corpus: str
    options: dict[str, Any]
    inputs: dict[str, dict[str, Any]]
    tools: dict[str, str]


class CorpusRecord(State):
    """Content of corpus.json. `files` has checksums and `sizes` has bytes."""

    files: dict[str, str]
    sizes: dict[str, Whole]


class TranslationRecord(CorpusRecord):
    """Content of corpus.json for sentence pairs."""

    sentences: dict[str, Whole]
    dictionary_size: Whole


def would_be_lost(problem: str) -> SettingError:
    """The error for an output folder that is replaced only with `force`."""
    return SettingError("", problem, instead="force", advice="or choose another output")


def plan(corpus: Corpus, options: PrepareOptions) -> dict[str, Any]:
    """The part of the record that is known before the work. A folder with the same record is up to date."""
    planned: dict[str, Any] = {
        "format": FORMAT,
        "corpus": corpus.name,
        "source_language": corpus.source,
        "target_language": corpus.target,
        "options": options.to_plain(),
        "inputs": {},
    }
    if isinstance(corpus, OwnCorpus):
        planned["inputs"] = corpus.inputs
    if isinstance(corpus, PublishedCorpus):
        planned["inputs"] = {
            file.name: {"url": file.url, "size": file.size, "sha256": file.sha256} for file in corpus.upstream_files()
        }
    return planned


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Writes corpus.json, with the checksum and size of every file in `folder`."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: sha256_file(path) for name, path in paths.items()}
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    text = json.dumps({**record, "files": files, "sizes": sizes}, indent=2, ensure_ascii=False)
    with atomic_file(folder / RECORD_FILE) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_corpus_record(folder: Path) -> CorpusRecord | None:
    """The content of corpus.json; None if there is no such file, or rskip did not write it."""
    try:
        return read_state(folder / RECORD_FILE, CorpusRecord, advice="")
    except (OSError, SettingError):
        return None


def made_record(folder: Path, kind: type[T]) -> T:
    """The content of corpus.json in a prepared folder.

    :raises SettingError: the content is not of `kind`. The error names the file and the key.
    """
    return read_state(folder / RECORD_FILE, kind, advice=f"move {folder} away and prepare it again")


def describe_made(made: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    """The description of a prepared folder in run records: the `kept` keys of its corpus.json and checksums."""
    return {
        **{key: made[key] for key in kept if key in made},
        "inputs": {name: file["sha256"] for name, file in made.get("inputs", {}).items()},
        "files_sha256": files_sha256(made["files"]),
    }


def files_sha256(files: Mapping[str, str]) -> str:
    """One checksum of the files of a prepared folder, from the checksums in its corpus.json."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def data_path(folder: Path, record: CorpusRecord) -> str:
    """fairseq-train's argument for a prepared folder: the folder, or its shards joined by colons."""
    shards = record.get("options", {}).get("shards", 1)
    return ":".join(str(shard) for shard in shard_folders(folder, shards))


def shard_folders(folder: Path, shards: int) -> list[Path]:
    """The folder of each part of the training set in a prepared folder."""
    return [folder] if shards == 1 else [folder / f"shard{number}" for number in range(1, shards + 1)]


def needs_build(folder: Path, planned: dict[str, Any], *, force: bool) -> bool:
    """Whether `folder` must be made; False if it is up to date.

    :param force: replace a folder that was prepared with other options.
    :raises SettingError: the folder holds something that would be lost.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    record = read_corpus_record(folder)
    if record is None:
        problem = f"{folder} was not made by rskip prepare, because it has no {RECORD_FILE}"
        raise SettingError("", problem, advice="choose another output")
    differs = record_difference(record, planned) or damage(folder, record)
    if differs is None:
        return False
    if not force:
        raise would_be_lost(f"{folder} {differs}")
    if others := _files(folder) - {*record["files"], RECORD_FILE}:
        problem = f"{folder} holds {min(others)}, which rskip prepare did not make"
        raise SettingError("", problem, advice="move it away first")
    return True


def damage(folder: Path, record: CorpusRecord) -> str | None:
    """Describes a missing or truncated file of a prepared folder, as the end of a sentence; None: no such file."""
    held = _files(folder)
    for name in [*record["files"], RECORD_FILE]:
        if name not in held:
            return f"lacks {name}"
        expected = record["sizes"].get(name)
        if expected is not None and (size := (folder / name).stat().st_size) != expected:
            return f"is damaged ({name} has {size:,} bytes, not {expected:,})"
    return None


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def record_difference(record: Mapping[str, Any], planned: Mapping[str, Any]) -> str | None:
    """How a record or an unfinished folder's state differs from a plan, as the end of a sentence; None: not at all.

    A size or checksum that the plan does not know equals every recorded one.
    """
    if record.get("corpus") != planned["corpus"]:
        return f"holds {record.get('corpus')}, not {planned['corpus']}"
    inputs = record.get("inputs", {})
    if set(inputs) != set(planned["inputs"]) or any(
        known[key] not in (None, inputs[name].get(key, known[key]))
        for name, known in planned["inputs"].items()
        for key in ("size", "sha256")
    ):
        return "was prepared from other files, or other versions of them"
    for key, made in (("options", "with"), ("tools", "by")):
        if key in planned and record.get(key) != planned[key]:
            return f"was prepared {made} {_listed(record.get(key))}, not {made} {_listed(planned[key])}"
    same = all(record.get(key) == planned[key] for key in planned.keys() - {"inputs"})
    return None if same else "was prepared by another version of rskip"


def _listed(options: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in options.items()) if isinstance(options, dict) else "?"


def write_json(path: Path, content: Any) -> None:
    """Writes a file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
