"""Describes an existing data folder of sentence pairs: its languages, its splits, and a checksum of its content.

Folders that fairseq-preprocess wrote have neither a text pipeline nor raw references.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rskip.corpora.binarised import find_data
from rskip.corpora.record import (
    RECORD_FILE,
    TranslationRecord,
    damage,
    files_sha256,
    made_record,
    read_corpus_record,
    shard_folders,
)
from rskip.files.checksum import sha256_file


@dataclass(frozen=True, kw_only=True)
class PreparedPairs:
    """A data folder that `rskip prepare` or fairseq-preprocess made.

    :param corpus: the corpus's name in corpus.json, or else the folder's name.
    :param raw: whether it has text/ and reference/, which raw sentences need. Otherwise its sentences are tokens.
    :param source, target: codes of the languages translated from and to.
    :param splits: train, valid, test, and further test sets.
    :param shards: parts of the training set.
    :param sha256: checksum of the checksums of its files: of all files, or, if fairseq-preprocess made the folder, of
        dictionaries and indices only.
    """

    path: Path
    corpus: str
    raw: bool
    source: str
    target: str
    splits: tuple[str, ...]
    shards: int
    sha256: str

    @property
    def folders(self) -> list[Path]:
        """The folders that hold the training set, of which fairseq-train reads one per epoch."""
        return shard_folders(self.path, self.shards)


def find_pairs(path: str | Path) -> PreparedPairs:
    """Describes the data folder at `path`. If it has a corpus.json, its other files are not read.

    :raises FileNotFoundError: no such folder, or a dictionary is missing.
    :raises ValueError: the folder holds something else, such as captions or text in one language; or a file
        is missing or cut off.
    """
    path = Path(path)
    if "captions" in (read_corpus_record(path) or {}):
        raise ValueError(
            f"{path} holds captions of images: expected sentence pairs; to train on captions, run a recipe of kind "
            "captioning (`rskip run flickr8k/2rskip_ln`)"
        )
    found = find_data(path)
    corpus, raw = path.resolve().name, (path / RECORD_FILE).is_file()
    if raw:
        record = made_record(path, TranslationRecord)
        if (wrong := damage(path, record)) is not None:
            raise ValueError(f"{path} {wrong}: prepare it again with `rskip prepare`")
        corpus, files = record.get("corpus") or corpus, record["files"]
    else:
        read = sorted({*path.glob("dict.*.txt"), *path.glob("*.idx"), *path.glob("shard*/*.idx")})
        files = {each.relative_to(path).as_posix(): sha256_file(each) for each in read}
    return PreparedPairs(
        path=path,
        corpus=corpus,
        raw=raw,
        source=found.languages[0],
        target=found.languages[1],
        splits=tuple(found.splits),
        shards=max(found.shards, 1),
        sha256=files_sha256(files),
    )
