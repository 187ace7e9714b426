"""Small corpora in files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.corpora.binarised import MmapSentences
from rskip.corpora.corpus import ParallelText, PrepareDefaults, PublishedCorpus, Text, UpstreamFile
from rskip.files.checksum import sha256_file
from rskip.text import Dictionary

ENGLISH = ["A dog runs.", "The man's dog-sled is “new”.", "Two men run.", "They see him.", "He runs."]
GERMAN = [
    "Ein Hund läuft.",
    "Sein Schlitten ist „neu“.",
    "Zwei Männer laufen.",
    "Sie sehen ihn.",
    "Er läuft.",
]
COUNTS = {"train": 5, "val": 3, "test": 2}

MakeCorpus = Callable[..., PublishedCorpus]


def write_gz(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))


def lines(sentences: list[str]) -> bytes:
    return "".join(sentence + "\n" for sentence in sentences).encode()


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, by their paths in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def tokens(path: Path) -> list[str]:
    """The tokens of a binarised side such as FOLDER/train.en, one sentence per item."""
    split, language = path.name.split(".")
    sentences = MmapSentences(path.with_name(f"{split}.en-de.{language}"))
    dictionary = Dictionary.load(path.with_name(f"dict.{language}.txt"))
    return [dictionary.decode(sentences.sentence(row).tolist()) for row in range(len(sentences))]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A folder with the six files of a small corpus."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    for split, count in COUNTS.items():
        write_gz(folder / f"{split}.en.gz", lines(ENGLISH[:count]))
        write_gz(folder / f"{split}.de.gz", lines(GERMAN[:count]))
    return folder


@pytest.fixture
def make_corpus(mirror: Path) -> MakeCorpus:
    """Gives the corpus of `mirror` as it is at that moment: its sums are those of the files then."""

    def make(
        *,
        url: str = "http://localhost:1",
        counts: dict[str, int] = COUNTS,
        defaults: PrepareDefaults = PrepareDefaults(size=20),  # noqa: B008 (frozen)
    ) -> PublishedCorpus:
        def parallel(split: str) -> tuple[ParallelText]:
            names = {language: f"{split}.{language}.gz" for language in ("en", "de")}
            sides = {
                language: Text(file=UpstreamFile(name=name, url=f"{url}/{name}", sha256=sha256_file(mirror / name)))
                for language, name in names.items()
            }
            return (ParallelText(name=f"tiny-{split}", sides=sides, sentences=counts[split]),)

        return PublishedCorpus(
            name="tiny-en-de",
            source="en",
            target="de",
            homepage="nowhere",
            licence="none",
            citation="none",
            defaults=defaults,
            folder="tiny",
            splits={"train": parallel("train"), "valid": parallel("val"), "test": parallel("test")},
        )

    return make


@pytest.fixture
def server(mirror: Path, file_server: Callable[[Path], Any]) -> Any:
    """A running server of `mirror`."""
    return file_server(mirror)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "bin/tiny"
