"""Reading fairseq's mmap format: every type of it, any part of it, and damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rskip.corpora.inspection import MmapSentences

DICTIONARY = Path("dict.en.txt")
SENTENCES = [[5, 6, 7, 2], [2], [4, 2], [], [9, 9, 5], [100, 2]]


@pytest.mark.parametrize("code", range(1, 11))
def test_every_type_that_fairseq_writes(tmp_path, write_mmap, code):
    write_mmap(tmp_path / "x", SENTENCES, code=code)
    read = MmapSentences(tmp_path / "x")
    assert len(read) == 6
    assert [read.sentence(number).tolist() for number in range(6)] == SENTENCES
    # an end mark is left out only where there is one, at the end
    lengths, counts = read.read(range(0, 6), vocabulary=101, dictionary=DICTIONARY)
    assert lengths.tolist() == [3, 0, 1, 0, 3, 1]
    expected = np.bincount([each for sentence in SENTENCES for each in sentence], minlength=101)
    assert counts.tolist() == expected.tolist()
    lengths, counts = read.read(range(3, 5), vocabulary=10, dictionary=DICTIONARY)
    assert (lengths.tolist(), counts.tolist()) == ([0, 3], [0, 0, 0, 0, 0, 1, 0, 0, 0, 2])


@pytest.mark.parametrize(("code", "index"), [(8, 100), (5, -1), (5, 1 << 60)])
def test_an_index_that_the_dictionary_lacks(tmp_path, write_mmap, code, index):
    write_mmap(tmp_path / "x", [[5, 2], [6, 7, 2], [5, 5, 8, 2], [7, index, 2], [index, 2]], code=code)
    with pytest.raises(ValueError) as error:
        MmapSentences(tmp_path / "x").read(range(1, 5), vocabulary=9, dictionary=DICTIONARY)
    assert str(error.value) == (
        f"{tmp_path}/x.bin: sentence 4 has token {index}, but dict.en.txt has only 9 tokens: give the dictionary "
        "that the data was binarised with"
    )


def at(place: int, *changed: bytes) -> Callable[[bytes], bytes]:
    """Replaces the bytes from this place on."""
    new = b"".join(changed)
    return lambda whole: whole[:place] + new + whole[place + len(new) :]


SIZES, PLACES = 26, 26 + 4 * len(SENTENCES)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("x.bin", lambda whole: whole[:-1], "truncated"),
        ("x.bin", lambda whole: whole + b"\0", "too long"),
        ("x.idx", lambda whole: whole[:-3], "truncated"),
        ("x.idx", lambda whole: whole + b"\0", "too long"),
        ("x.idx", lambda whole: whole[:20], "truncated"),
        ("x.idx", at(0, b"HUFFIDX\0\0"), "mmap"),
        ("x.idx", at(9, struct.pack("<Q", 2)), "mmap"),
        ("x.idx", at(17, b"\x0b"), "mmap"),
        ("x.idx", at(SIZES + 4, struct.pack("<i", 2)), "contradict"),  # the second sentence
        ("x.idx", at(PLACES + 2 * 8, struct.pack("<q", 4)), "contradict"),  # of the third, where a block begins
        ("x.idx", at(PLACES + 5 * 8, struct.pack("<q", 21)), "damaged|too long"),
        # the fourth ends before it begins, where its place says so
        ("x.idx", lambda whole: at(PLACES + 3 * 8, struct.pack("<q", 16))(
            at(SIZES + 2 * 4, struct.pack("<2i", 3, -1))(whole)), "damaged"),
    ],
)  # fmt: skip
def test_damaged_files(tmp_path, write_mmap, name, damage, message):
    write_mmap(tmp_path / "x", SENTENCES)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(ValueError, match=rf"{tmp_path}/x\..*({message})"):
        read = MmapSentences(tmp_path / "x")
        for rows in (range(2), range(2, len(read))):
            read.read(rows, vocabulary=101, dictionary=DICTIONARY)


@pytest.mark.parametrize("name", ["x.bin", "x.idx"])
def test_missing_files(tmp_path, write_mmap, name):
    write_mmap(tmp_path / "x", SENTENCES)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError):
        MmapSentences(tmp_path / "x")


def test_a_file_that_another_process_truncates_is_told(tmp_path, write_mmap):
    write_mmap(tmp_path / "x", SENTENCES)
    read = MmapSentences(tmp_path / "x")
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.bin was changed"):
        read.sentence(0)
