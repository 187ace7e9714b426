"""Finds or prepares the data folder of a run, and lists fairseq's arguments for it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rskip.corpora import PrepareOptions, find_corpus, prepare
from rskip.corpora.prepared import find_pairs
from rskip.corpora.record import RECORD_FILE, TranslationRecord, describe_made, made_record, shard_folders
from rskip.machine.cores import available_cores
from rskip.translation.recipe import TranslationSettings


def data_folder(settings: TranslationSettings) -> Path:
    """The folder in the settings, or `data-bin/<corpus>`, with a hash of options that are not defaults."""
    if settings.data is not None:
        return Path(settings.data)
    if settings.prepare == PrepareOptions().resolve(find_corpus(settings.corpus)):
        return Path("data-bin", settings.corpus)
    canonical = json.dumps(settings.prepare.to_plain(), sort_keys=True)
    return Path("data-bin", f"{settings.corpus}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}")


def ensure_data(settings: TranslationSettings, *, mirror: str | None) -> Path:
    """Returns the data folder. If the folder of a corpus is missing or incomplete, it is prepared."""
    folder = data_folder(settings)
    if settings.data is None:
        corpus = find_corpus(settings.corpus)
        prepare(corpus, folder, options=settings.prepare, mirror=mirror, workers=available_cores())
    return folder


def languages(settings: TranslationSettings) -> tuple[str, str]:
    """The codes of source and target language."""
    corpus = find_corpus(settings.corpus) if settings.data is None else find_pairs(settings.data)
    return corpus.source, corpus.target


def describe_data(folder: Path) -> dict[str, Any]:
    """The corpus, options, counts and tools of a data folder, and checksums of its inputs and files."""
    if not (folder / RECORD_FILE).is_file():  # a folder of fairseq-preprocess
        found = find_pairs(folder)
        return {"corpus": found.corpus, "inputs": {}, "files_sha256": found.sha256}
    made: Any = made_record(folder, TranslationRecord)
    return describe_made(made, ("corpus", "format", "options", "sentences", "dictionary_size", "tools"))


def data_arguments(settings: TranslationSettings) -> list[str]:
    """The arguments of fairseq's programs for data and user-dir.

    fairseq reads one shard per epoch. The languages are given because fairseq would not write guessed ones into its
    checkpoints.
    """
    if settings.data is None:
        folders = shard_folders(data_folder(settings), settings.prepare.shards)
    else:
        folders = find_pairs(settings.data).splits["train"]
    source, target = languages(settings)
    return [
        ":".join(map(str, folders)),
        *("--source-lang", source, "--target-lang", target),
        *("--user-dir", settings.user_dir),
    ]
