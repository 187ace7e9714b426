"""Duplicates over many chunks."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rskip.corpora.cleaning import DIGEST_BYTES, find_duplicates, pair_digest, read_rows

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


KILLED = """
import os, signal, sys
from pathlib import Path
from rskip.corpora.cleaning import duplicates

folder, step, calls = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
real = getattr(duplicates, step) if step != "write_bytes" else Path.write_bytes

def dying(*arguments):
    global calls
    calls -= 1
    if calls < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)

setattr(Path if step == "write_bytes" else duplicates, step, dying)
duplicates.find_duplicates(sorted(folder.glob("*.digests")), folder / "duplicates", pairs_at_once=600)
"""


@pytest.mark.parametrize(
    ("step", "calls"), [("_starts", 0), ("_repeated_places", 0), ("_repeated_places", 3), ("write_bytes", 2)]
)
def test_a_killed_search_is_made_again(tmp_path: Path, step: str, calls: int) -> None:
    chunks = random_chunks(count=4, pairs=1_000, different=3_000)
    paths = write(chunks, tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), step, str(calls)]
    assert subprocess.run(command).returncode == -9
    assert not (tmp_path / "duplicates").exists()
    answers = find_duplicates(paths, tmp_path / "duplicates")
    assert found(answers) == by_brute_force(chunks)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(path.name for path in paths), "duplicates"]
    assert sorted((tmp_path / "duplicates").iterdir()) == answers


PEAK = """
import re, sys
from pathlib import Path
from rskip.corpora.cleaning import find_duplicates

folder = Path(sys.argv[1])
find_duplicates(sorted(folder.glob("*.digests")), folder / "duplicates", pairs_at_once=100_000)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
def test_memory_grows_by_a_byte_a_pair(tmp_path: Path) -> None:
    peaks = []
    for count in (20, 200):
        folder = tmp_path / str(count)
        folder.mkdir()
        write([[random.Random(chunk).randbytes(20_000 * DIGEST_BYTES)] for chunk in range(count)], folder)
        command = [sys.executable, "-c", PEAK, str(folder)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024)
    more_pairs = 180 * 20_000
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
