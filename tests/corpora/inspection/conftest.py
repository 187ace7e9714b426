"""Binarised corpora of hand-written bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

UNK, EOS = 3, 2
TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f8", 7: "f8", 8: "u2", 9: "u4", 10: "u8"}
"""fairseq's codes for the types of its .bin files."""

WORDS = {"en": ["a", "dog", "runs", "two"], "de": ["ein", "Hund", "läuft", "zwei", "madeupword0000"]}

TRAIN = [
    ("a dog runs", "ein Hund läuft"),
    ("two", "zwei zwei zwei zwei"),
    ("a a a a a", "ein"),
    ("", "Hund"),
    ("two dog runs", "zwei Hund läuft läuft"),
]
VALID = [("a cat runs", "ein Hund läuft"), ("dog", "Katze")]

WriteMmap = Callable[..., None]
WriteSplit = Callable[[Path, str, Sequence[tuple[str, str]]], None]


def mmap_files(prefix: Path, sentences: Sequence[Sequence[int]], *, code: int = 8) -> None:
    """Writes PREFIX.idx and PREFIX.bin, the indices as they are given."""
    body, places = b"", []
    for sentence in sentences:
        places.append(len(body))
        body += np.array(sentence, dtype=f"<{TYPES[code]}").tobytes()
    sizes = [len(sentence) for sentence in sentences]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, code, len(sentences))
    index += struct.pack(f"<{len(sizes)}i", *sizes) + struct.pack(f"<{len(places)}q", *places)
    prefix.with_name(prefix.name + ".idx").write_bytes(index)
    prefix.with_name(prefix.name + ".bin").write_bytes(body)


@pytest.fixture
def write_mmap() -> WriteMmap:
    return mmap_files


@pytest.fixture
def write_split() -> WriteSplit:
    """Writes a split of WORDS, and their dictionaries beside it."""

    def write(folder: Path, split: str, pairs: Sequence[tuple[str, str]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for side, (language, words) in enumerate(WORDS.items()):
            indices = {word: 4 + index for index, word in enumerate(words)}
            sentences = [[*(indices.get(word, UNK) for word in pair[side].split()), EOS] for pair in pairs]
            mmap_files(folder / f"{split}.en-de.{language}", sentences)
            lines = "".join(f"{word} 1\n" for word in words)
            (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")

    return write


@pytest.fixture
def data(tmp_path: Path, write_split: WriteSplit) -> Path:
    """A folder of hand-written bytes: TRAIN and VALID."""
    folder = tmp_path / "data-bin"
    write_split(folder, "train", TRAIN)
    write_split(folder, "valid", VALID)
    return folder
