"""Duplicates over many chunks."""

import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rskip.corpora.cleaning import DIGEST_BYTES, duplicates, find_duplicates, pair_digest, read_rows

Chunks = Sequence[Sequence[bytes]]


def write(chunks: Chunks, folder: Path) -> list[Path]:
    paths = [folder / f"{number}.digests" for number in range(len(chunks))]
    for path, digests in zip(paths, chunks, strict=True):
        path.write_bytes(b"".join(digests))
    return paths


def found(answers: Sequence[Path]) -> list[list[int]]:
    return [read_rows(path).tolist() for path in answers]


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
    answers = find_duplicates(write([[a, b, a], [], [c, b, a, c]], tmp_path), tmp_path / "duplicates")
    assert found(answers) == [[2], [], [1, 2, 3]]
    assert sorted((tmp_path / "duplicates").iterdir()) == answers


def test_no_pairs(tmp_path: Path) -> None:
    assert find_duplicates([], tmp_path / "none") == []
    assert found(find_duplicates(write([[], []], tmp_path), tmp_path / "empty")) == [[], []]


# Digests that differ in one half, or in the bits that choose a partition, only.
DIGESTS = st.builds(
    lambda first, second: bytes([first, *[0] * 7, second, *[0] * 7]), st.integers(0, 9), st.integers(0, 3)
)


@given(st.lists(st.lists(DIGESTS, max_size=20), max_size=8), st.integers(1, 100))
def test_equals_brute_force(chunks: list[list[bytes]], pairs_at_once: int) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        answers = find_duplicates(write(chunks, folder), folder / "duplicates", pairs_at_once=pairs_at_once)
        assert found(answers) == by_brute_force(chunks)


def random_chunks(*, count: int, pairs: int, different: int) -> Chunks:
    generator = random.Random(1)
    return [[pair_digest((str(generator.randrange(different)), "x")) for _ in range(pairs)] for _ in range(count)]


@pytest.mark.parametrize("pairs_at_once", [500, 7_000, 1 << 20])
def test_the_number_of_partitions_changes_nothing(tmp_path: Path, pairs_at_once: int) -> None:
    chunks = random_chunks(count=11, pairs=1_000, different=8_000)
    expected = by_brute_force(chunks)
    assert 2_000 < sum(map(len, expected)) < 9_000
    answers = find_duplicates(write(chunks, tmp_path), tmp_path / "duplicates", pairs_at_once=pairs_at_once)
    assert found(answers) == expected


def test_an_answer_that_is_there_is_left_alone(tmp_path: Path) -> None:
    paths = write(random_chunks(count=2, pairs=10, different=5), tmp_path)
    answers = find_duplicates(paths, tmp_path / "duplicates")
    times = [path.stat().st_mtime_ns for path in answers]
    assert find_duplicates(paths, tmp_path / "duplicates") == answers
    assert [path.stat().st_mtime_ns for path in answers] == times


class Killed(BaseException):
    pass


def test_a_killed_search_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = random_chunks(count=4, pairs=1_000, different=3_000)
    paths = write(chunks, tmp_path)
    for owner, step, calls in (
        (duplicates, "_starts", 0),
        (duplicates, "_repeated_places", 0),
        (duplicates, "_repeated_places", 3),
        (Path, "write_bytes", 2),
    ):
        left, real = calls, getattr(owner, step)

        def dying(*arguments: Any, real: Callable[..., Any] = real) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return real(*arguments)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(owner, step, dying)
            find_duplicates(paths, tmp_path / "duplicates", pairs_at_once=600)
        assert not (tmp_path / "duplicates").exists()
    answers = find_duplicates(paths, tmp_path / "duplicates")
    assert found(answers) == by_brute_force(chunks)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(path.name for path in paths), "duplicates"]
    assert sorted((tmp_path / "duplicates").iterdir()) == answers


def test_memory_grows_by_a_byte_a_pair(tmp_path: Path) -> None:
    peaks = []
    for count in (20, 200):
        folder = tmp_path / str(count)
        folder.mkdir()
        paths = write([[random.Random(chunk).randbytes(10_000 * DIGEST_BYTES)] for chunk in range(count)], folder)
        tracemalloc.start()
        find_duplicates(paths, folder / "duplicates", pairs_at_once=100_000)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    more_pairs = 180 * 10_000
    assert peaks[1] - peaks[0] < 3 * more_pairs  # their digests alone take 16 bytes each


def test_a_damaged_file_of_digests_is_named(tmp_path: Path) -> None:
    paths = write([[b"0" * DIGEST_BYTES], [b"0" * DIGEST_BYTES, b"123"]], tmp_path)
    with pytest.raises(ValueError, match=r"1\.digests is damaged: 3 bytes follow 1 digests: remove it and run again"):
        find_duplicates(paths, tmp_path / "duplicates")
    assert not (tmp_path / "duplicates").exists()


def test_digests() -> None:
    # blake2b of "a b\nc" with 16 bytes, by coreutils' b2sum -l 128
    assert pair_digest(("a b", "c")).hex() == "0892c5e4b2ace46dbd3f367ace4b38eb"
    assert len({pair_digest(words) for words in (("a", "b"), ("b", "a"), ("a b", ""), ("", "a b"))}) == 4
