"""Which binarised files a folder holds: splits, languages, dictionaries, shards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SPLIT_ORDER = ("train", "valid", "test")
_BINARISED = re.compile(
    r"(?P<split>[^.]+)\.(?P<source>[^.]+?)-(?P<target>(?!None\.)[^.]+)\.(?P<side>(?P=source)|(?P=target))\.(idx|bin)"
)
_RAW = re.compile(r"[^.]+\.(?P<source>[^.]+?)-(?P<target>[^.]+)\.((?P=source)|(?P=target))")
_SHARD = re.compile(r"shard(\d+)")


@dataclass(frozen=True, kw_only=True)
class DataFolder:
    """A binarised corpus of one language pair.

    dictionaries: file of each language.
    splits: name to the folders that hold its parts. Those of train follow each other; of any other split fairseq
        reads the first part alone, and so is there but one.
    shards: how many folders `shard1`, `shard2`, ... there are.
    """

    path: Path
    source: str
    target: str
    dictionaries: dict[str, Path]
    splits: dict[str, tuple[Path, ...]]
    shards: int

    @property
    def languages(self) -> tuple[str, str]:
        return (self.source, self.target)

    def prefix(self, part: Path, split: str, language: str) -> Path:
        """Path of a part's files, without `.idx` and `.bin`."""
        return part / f"{split}.{self.source}-{self.target}.{language}"


def find_data(path: str | Path) -> DataFolder:
    """What `rskip prepare` or fairseq-preprocess wrote into a folder, or into its shards.

    :raises FileNotFoundError: no such folder, or a dictionary is missing.
    :raises ValueError: a folder of something else, of several language pairs, or of shards that don't go together.
    """
    path = Path(path)
    if not path.is_dir():
        kind = "is a file" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{path} {kind}: expected a folder that `rskip prepare` or fairseq-preprocess made")
    shards = sorted(_shards(path), key=lambda folder: int(folder.name.removeprefix("shard")))
    folders = [path, *shards]
    parts: dict[str, list[Path]] = {}
    pairs: dict[tuple[str, str], str] = {}
    for folder in folders:
        for match in _matches(folder, _BINARISED):
            pairs.setdefault((match["source"], match["target"]), match[0])
            if folder not in parts.setdefault(match["split"], []):
                parts[match["split"]].append(folder)
    if not pairs:
        raise ValueError(_why_nothing(path))
    if len(pairs) > 1:
        files = ", ".join(sorted(pairs.values()))
        raise ValueError(f"{path} holds several language pairs ({files}): expected one; keep each in its own folder")
    ((source, target),) = pairs
    splits = {split: tuple(parts[split] if split == "train" else parts[split][:1]) for split in _in_order(parts)}
    dictionaries = {language: _dictionary(folders, language) for language in (source, target)}
    return DataFolder(
        path=path, source=source, target=target, dictionaries=dictionaries, splits=splits, shards=len(shards)
    )


def _shards(path: Path) -> Iterator[Path]:
    return (folder for folder in path.iterdir() if folder.is_dir() and _SHARD.fullmatch(folder.name))


def _matches(folder: Path, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return (match for name in names if (match := pattern.fullmatch(name)))


def _in_order(splits: dict[str, list[Path]]) -> list[str]:
    """train, valid, test, test1, test2, ..., then others by name."""

    def key(name: str) -> tuple[int, int, str]:
        kind = name.rstrip("0123456789")
        number = name.removeprefix(kind)
        return (SPLIT_ORDER.index(kind) if kind in SPLIT_ORDER else len(SPLIT_ORDER), int(number or 0), name)

    return sorted(splits, key=key)


def _dictionary(folders: list[Path], language: str) -> Path:
    """A language's dictionary, which is the same in all folders that have one."""
    paths = [path for folder in folders if (path := folder / f"dict.{language}.txt").is_file()]
    if not paths:
        raise FileNotFoundError(
            f"{folders[0] / f'dict.{language}.txt'} is missing: fairseq-preprocess writes it beside the data"
        )
    content = paths[0].read_bytes()
    for other in paths[1:]:
        if other.read_bytes() != content:
            raise ValueError(f"{other} differs from {paths[0]}: shards of one corpus share their dictionaries")
    return paths[0]


def _why_nothing(path: Path) -> str:
    """Says that there is no binarised data in a folder, and what there is in its place."""
    expected = "expected train.SOURCE-TARGET.LANGUAGE.idx and .bin, which `rskip prepare` or fairseq-preprocess writes"
    if raw := next(_matches(path, _RAW), None):
        return (
            f"{path} is in fairseq's raw format ({raw[0]} is text): run fairseq-preprocess with --dataset-impl mmap, "
            "its default"
        )
    if (path / "train.idx").is_file() or any(path.glob("*.*-None.*.idx")):
        return f"{path} holds one language without translations: {expected}"
    for child in sorted(path.iterdir()):
        if child.is_dir() and next(_matches(child, _BINARISED), None):
            return f"{path} holds no binarised data itself, but {child.name} in it does: name that one"
    return f"{path} holds no binarised data: {expected}"
