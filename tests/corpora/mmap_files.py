"""Binarised corpora of hand-written bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

UNK, EOS = 3, 2
TYPES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f8", 7: "f8", 8: "u2", 9: "u4", 10: "u8"}
"""fairseq's codes for the types of its .bin files."""

WORDS = {"en": ["a", "dog", "runs", "two"], "de": ["ein", "Hund", "läuft", "zwei", "madeupword0000"]}


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


def write_split(folder: Path, split: str, pairs: Sequence[tuple[str, str]]) -> Path:
    """Writes a split of WORDS, and their dictionaries beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, (language, words) in enumerate(WORDS.items()):
        indices = {word: 4 + index for index, word in enumerate(words)}
        sentences = [[*(indices.get(word, UNK) for word in pair[side].split()), EOS] for pair in pairs]
        mmap_files(folder / f"{split}.en-de.{language}", sentences)
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    return folder
