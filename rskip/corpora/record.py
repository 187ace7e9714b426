"""corpus.json: what a prepared folder holds and how it was made. Written last: it vouches for the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rskip.checksum import sha256_file
from rskip.corpora.corpus import Corpus, PublishedCorpus

RECORD_FILE = "corpus.json"

FORMAT = 1
"""Goes up when the same options come to give other bytes."""


def plan(corpus: Corpus, options: dict[str, str | int]) -> dict[str, Any]:
    """The part of the record that is known before the work; a folder whose record agrees is up to date."""
    planned: dict[str, Any] = {
        "format": FORMAT,
        "corpus": corpus.name,
        "source_language": corpus.source,
        "target_language": corpus.target,
        "options": options,
        "inputs": {},
    }
    if isinstance(corpus, PublishedCorpus):
        planned["inputs"] = {
            file.name: {"url": file.url, "sha256": file.sha256} for file in corpus.upstream_files()
        }
    return planned


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Writes corpus.json, with the sha256 of every file that `folder` holds by now."""
    files = {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({**record, "files": files}, indent=2, ensure_ascii=False)
    (folder / RECORD_FILE).write_text(text + "\n", encoding="utf-8")


def read_record(folder: Path) -> dict[str, Any] | None:
    """What corpus.json says; None where there is none, or one that is not ours."""
    try:
        record = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("files"), dict) else None


def must_make(folder: Path, planned: dict[str, Any], *, force: bool) -> bool:
    """Whether `folder` has to be made; False where it is up to date.

    :param force: replace what was prepared otherwise.
    :raises ValueError: the folder holds something that would be lost.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    record = read_record(folder)
    if record is None:
        raise ValueError(
            f"{folder} was not made by rskip prepare (it has no {RECORD_FILE}): choose another --output"
        )
    known = {*record["files"], RECORD_FILE}
    held = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    difference = _difference(record, planned)
    if difference is None and known <= held:
        return False
    if not force:
        difference = difference or f"lacks {min(known - held)}"
        raise ValueError(f"{folder} {difference}: choose another --output, or replace it with --force")
    if held - known:
        raise ValueError(
            f"{folder} holds {min(held - known)}, which rskip prepare did not make: move it away first"
        )
    return True


def _difference(record: dict[str, Any], planned: dict[str, Any]) -> str | None:
    """How a folder differs from the plan, as a sentence's end; None where it doesn't."""
    changed = [key for key in planned if record.get(key) != planned[key]]
    if not changed:
        return None
    if "corpus" in changed:
        return f"holds {record.get('corpus')}, not {planned['corpus']}"
    if "options" in changed:
        return f"was prepared with {_listed(record.get('options'))}, not with {_listed(planned['options'])}"
    if "inputs" in changed:
        return "was prepared from other versions of the upstream files"
    return "was prepared by another version of rskip"


def _listed(options: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in options.items()) if isinstance(options, dict) else "?"
