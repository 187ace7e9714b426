"""Duplicates over many chunks."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from rskip.corpora.cleaning import find_duplicates, pair_digest

Chunks = Sequence[Sequence[bytes]]


def found(chunks: Chunks, folder: Path) -> list[list[int]]:
    paths = [folder / f"{number}.digests" for number in range(len(chunks))]
    for path, digests in zip(paths, chunks, strict=True):
        path.write_bytes(b"".join(digests))
    return [rows.tolist() for rows in find_duplicates(paths)]


def by_brute_force(chunks: Chunks) -> list[list[int]]:
    seen: set[bytes] = set()
    result = []
    for digests in chunks:
        rows = []
        for row, digest in enumerate(digests):
            if digest in seen:
                rows.append(row)
            seen.add(digest)
        result.append(rows)
    return result


def test_the_first_stays(tmp_path: Path) -> None:
    a, b, c = (pair_digest((word, word)) for word in "abc")
    assert found([[a, b, a], [], [c, b, a, c]], tmp_path) == [[2], [], [1, 2, 3]]
    assert found([], tmp_path) == [] and found([[], []], tmp_path) == [[], []]


@pytest.mark.parametrize("different", [3, 8_000])
def test_equals_brute_force(tmp_path: Path, different: int) -> None:
    draw = random.Random(different)
    chunks = [
        [pair_digest((str(draw.randrange(different)), "x")) for _ in range(draw.choice([0, 1, 1_000]))]
        for _ in range(20)
    ]
    expected = by_brute_force(chunks)
    assert sum(map(len, expected)) > 200
    assert found(chunks, tmp_path) == expected


def test_digests() -> None:
    # blake2b of "a b\nc" with 8 bytes, by coreutils' b2sum -l 64
    assert pair_digest(("a b", "c")).hex() == "571bf6b5dc33491d"
    assert len({pair_digest(words) for words in (("a", "b"), ("b", "a"), ("a b", ""), ("", "a b"))}) == 4
