"""The data folder that a run trains on, made where it is missing, and what fairseq is given of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rskip.corpora import PrepareOptions, find_corpus, prepare
from rskip.corpora.record import TranslationRecord, describe_made, made_record, shard_folders
from rskip.machine.environment import available_cores
from rskip.translation.recipe import TranslationSettings


def data_folder(settings: TranslationSettings) -> Path:
    """`data-bin/<corpus>`, with a hash of the options where they are not the corpus's own."""
    if settings.prepare == PrepareOptions().resolve(find_corpus(settings.corpus)):
        return Path("data-bin", settings.corpus)
    canonical = json.dumps(settings.prepare.to_plain(), sort_keys=True)
    return Path("data-bin", f"{settings.corpus}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}")


def ensure_data(settings: TranslationSettings, *, mirror: str | None) -> Path:
    """Returns the data folder, made as `rskip prepare` makes it where it is not there whole."""
    folder, corpus = data_folder(settings), find_corpus(settings.corpus)
    prepare(corpus, folder, options=settings.prepare, mirror=mirror, workers=available_cores())
    return folder


def describe_data(folder: Path) -> dict[str, Any]:
    """Corpus, options, counts and tools of a data folder, and checksums of what went in and came out."""
    made: Any = made_record(folder, TranslationRecord)
    return describe_made(made, ("corpus", "format", "options", "sentences", "dictionary_size", "tools"))


def data_arguments(settings: TranslationSettings) -> list[str]:
    """What fairseq's programs are given of data and user-dir.

    fairseq reads one of several shards an epoch. It could guess the languages from the data folder, but would then not
    write them into its checkpoints.
    """
    corpus, folders = find_corpus(settings.corpus), shard_folders(data_folder(settings), settings.prepare.shards)
    languages = ["--source-lang", corpus.source, "--target-lang", corpus.target]
    return [":".join(map(str, folders)), *languages, "--user-dir", settings.user_dir]
