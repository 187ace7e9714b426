"""Finds existing data folders of sentence pairs: their languages, their splits, and a checksum of their content.

Folders that fairseq-preprocess wrote have neither a text pipeline nor raw references.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rskip.corpora.corpus import SPLITS
from rskip.corpora.record import (
    RECORD_FILE,
    CorpusRecord,
    damage,
    files_sha256,
    made_record,
    read_corpus_record,
)
from rskip.files.checksum import sha256_file

_BINARISED = re.compile(r"([^.]+)\.([^.]+?)-((?!None\.)[^.]+)\.(?:\2|\3)\.(?:idx|bin)")


@dataclass(frozen=True, kw_only=True)
class PreparedPairs:
    """A data folder of one language pair, which `rskip prepare` or fairseq-preprocess made.

    :param corpus: the corpus's name in corpus.json, or else the folder's name.
    :param raw: whether it has text/ and reference/, which raw sentences need. Otherwise its sentences are tokens.
    :param source, target: codes of the languages translated from and to.
    :param dictionaries: the file of each language.
    :param splits: the folders of each split's parts. Only train can have several, of which fairseq-train reads one per
        epoch.
    :param shards: number of folders `shard1`, `shard2`, ...
    :param sha256: checksum of the checksums of its files: of all files, or, if fairseq-preprocess made the folder, of
        dictionaries and indices only.
    """

    path: Path
    corpus: str
    raw: bool
    source: str
    target: str
    dictionaries: dict[str, Path]
    splits: dict[str, list[Path]]
    shards: int
    sha256: str

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source, self.target


def find_pairs(path: str | Path) -> PreparedPairs:
    """Finds the data that `rskip prepare` or fairseq-preprocess wrote into a folder or its shards.

    :raises FileNotFoundError: the folder or a dictionary is missing.
    :raises ValueError: the folder holds something else, such as captions, several language pairs, or inconsistent
        shards; or a file of `rskip prepare` is missing or cut off.
    """
    path = Path(path)
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        expected = "a folder from `rskip prepare` or fairseq-preprocess, or a translation model"
        raise FileNotFoundError(f"{path} {kind}: expected {expected}")
    if "captions" in (read_corpus_record(path) or {}):
        raise ValueError(
            f"{path} holds captions of images: expected sentence pairs; to train on captions, run a recipe of kind "
            "captioning (`rskip run flickr8k/2rskip_ln`)"
        )
    shards = [folder for folder in path.iterdir() if folder.is_dir() and re.fullmatch(r"shard\d+", folder.name)]
    folders = [path, *sorted(shards, key=lambda folder: int(folder.name.removeprefix("shard")))]
    found = [(folder, match) for folder in folders for match in _matches(folder)]
    pairs: dict[tuple[str, ...], str] = {}
    splits: dict[str, list[Path]] = {}
    for folder, match in found:
        split, *languages = match.groups()
        pairs.setdefault(tuple(languages), match[0])
        parts = splits.setdefault(split, [])
        if folder not in parts and (split == "train" or not parts):
            parts.append(folder)
    if not pairs:
        raise ValueError(_why_nothing(path))
    if len(pairs) > 1:
        files = ", ".join(sorted(pairs.values()))
        raise ValueError(f"{path} holds several language pairs ({files}): expected one; keep each in its own folder")
    ((source, target),) = pairs
    dictionaries = {language: _dictionary(folders, language) for language in (source, target)}
    corpus, raw = path.resolve().name, (path / RECORD_FILE).is_file()
    if raw:
        record = made_record(path, CorpusRecord)
        if (wrong := damage(path, record)) is not None:
            raise ValueError(f"{path} {wrong}: prepare it again with `rskip prepare`")
        corpus, sums = record.get("corpus") or corpus, record["files"]
    else:
        read = sorted({*path.glob("dict.*.txt"), *path.glob("*.idx"), *path.glob("shard*/*.idx")})
        sums = {each.relative_to(path).as_posix(): sha256_file(each) for each in read}
    return PreparedPairs(
        path=path,
        corpus=corpus,
        raw=raw,
        source=source,
        target=target,
        dictionaries=dictionaries,
        splits={split: splits[split] for split in sorted(splits, key=_order)},
        shards=len(shards),
        sha256=files_sha256(sums),
    )


def _matches(folder: Path) -> list[re.Match[str]]:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return [match for name in names if (match := _BINARISED.fullmatch(name))]


def _order(split: str) -> tuple[int, int, str]:
    """Sort key: train, valid, test, test1, test2, ..., then others by name."""
    kind = split.rstrip("0123456789")
    number = split.removeprefix(kind)
    return (SPLITS.index(kind) if kind in SPLITS else len(SPLITS), int(number or 0), split)


def _dictionary(folders: list[Path], language: str) -> Path:
    """A language's dictionary. All folders that have one must have the same."""
    name = f"dict.{language}.txt"
    paths = [folder / name for folder in folders if (folder / name).is_file()]
    if not paths:
        raise FileNotFoundError(f"{folders[0] / name} is missing: fairseq-preprocess writes it next to the data")
    for other in paths[1:]:
        if other.read_bytes() != paths[0].read_bytes():
            raise ValueError(f"{other} differs from {paths[0]}: expected the same dictionary in all shards")
    return paths[0]


def _why_nothing(path: Path) -> str:
    """The error message for a folder without binarised data, which describes the folder's content."""
    expected = "expected train.SOURCE-TARGET.LANGUAGE.idx and .bin, which `rskip prepare` or fairseq-preprocess writes"
    if (path / "train.idx").is_file() or any(path.glob("*.*-None.*.idx")):
        return f"{path} holds one language without translations: {expected}"
    for child in sorted(path.iterdir()):
        if child.is_dir() and _matches(child):
            return f"{path} holds no binarised data itself, but {child.name} in it does: give that folder"
    return f"{path} holds no binarised data: {expected}"
