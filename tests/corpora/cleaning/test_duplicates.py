"""Duplicates."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from rskip.corpora.cleaning import find_duplicates, pair_digest


def found(digests: Sequence[bytes], folder: Path) -> list[int]:
    (folder / "digests").write_bytes(b"".join(digests))
    return find_duplicates(folder / "digests").tolist()


def test_the_first_stays(tmp_path: Path) -> None:
    a, b, c = (pair_digest((word, word)) for word in "abc")
    assert found([a, b, a, c, b, a, c], tmp_path) == [2, 4, 5, 6]
    assert found([], tmp_path) == []


@pytest.mark.parametrize("different", [3, 8_000])
def test_equals_brute_force(tmp_path: Path, different: int) -> None:
    draw = random.Random(different)
    digests = [pair_digest((str(draw.randrange(different)), "x")) for _ in range(10_000)]
    seen: set[bytes] = set()
    expected = [row for row, digest in enumerate(digests) if digest in seen or seen.add(digest)]
    assert len(expected) > 200
    assert found(digests, tmp_path) == expected


def test_digests() -> None:
    # blake2b of "a b\nc" with 8 bytes, by coreutils' b2sum -l 64
    assert pair_digest(("a b", "c")).hex() == "571bf6b5dc33491d"
    assert len({pair_digest(words) for words in (("a", "b"), ("b", "a"), ("a b", ""), ("", "a b"))}) == 4
