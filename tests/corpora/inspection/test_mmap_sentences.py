"""Reading fairseq's mmap format: every type of it, any part of it, and damage."""

from __future__ import annotations

import struct
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


def test_damaged_files(tmp_path, write_mmap):
    index, data = tmp_path / "x.idx", tmp_path / "x.bin"

    def refused(message: str) -> None:
        with pytest.raises(ValueError) as caught:
            read = MmapSentences(tmp_path / "x")
            for rows in (range(2), range(2, len(read))):
                read.read(rows, vocabulary=101, dictionary=DICTIONARY)
        assert str(caught.value).startswith(str(tmp_path / "x."))
        assert message in str(caught.value)

    def refused_missing() -> None:
        with pytest.raises(FileNotFoundError):
            MmapSentences(tmp_path / "x")

    def changed(place: int, content: bytes) -> None:
        write_mmap(tmp_path / "x", SENTENCES)
        whole = index.read_bytes()
        index.write_bytes(whole[:place] + content + whole[place + len(content) :])

    write_mmap(tmp_path / "x", SENTENCES)
    whole_index, whole_data = index.read_bytes(), data.read_bytes()
    data.write_bytes(whole_data[:-1])
    refused("x.bin is truncated: it has 23 bytes, x.idx describes 24")
    data.write_bytes(whole_data + b"\0")
    refused("x.bin is too long: it has 25 bytes, x.idx describes 24")
    data.unlink()
    refused_missing()
    data.write_bytes(whole_data)
    index.unlink()
    refused_missing()
    index.write_bytes(whole_index[:-3])
    refused("x.idx is truncated: it has 95 bytes, 6 sentences take 98")
    index.write_bytes(whole_index + b"\0")
    refused("x.idx is too long: it has 99 bytes")
    index.write_bytes(whole_index[:20])
    refused("truncated")
    index.write_bytes(b"HUFFIDX\0\0" + whole_index[9:])
    refused("mmap")
    changed(9, struct.pack("<Q", 2))
    refused("mmap")
    changed(17, b"\x0b")
    refused("mmap")
    changed(26 + 4, struct.pack("<i", 2))  # second sentence
    refused("x.idx is damaged: its sizes and offsets contradict each other")
    changed(26 + 6 * 4 + 2 * 8, struct.pack("<q", 4))  # place of the third, where a block begins
    refused("x.idx is damaged: its sizes and offsets contradict each other")
    changed(26 + 6 * 4 + 5 * 8, struct.pack("<q", 21))
    refused("x.idx is damaged")
    write_mmap(tmp_path / "x", SENTENCES)
    whole = bytearray(index.read_bytes())
    struct.pack_into("<2i", whole, 26 + 2 * 4, 3, -1)  # the fourth ends before it begins, where its place says so
    struct.pack_into("<q", whole, 26 + 6 * 4 + 3 * 8, 16)
    index.write_bytes(whole)
    refused("x.idx is damaged")


def test_a_file_that_another_process_truncates_is_told(tmp_path, write_mmap):
    write_mmap(tmp_path / "x", SENTENCES)
    read = MmapSentences(tmp_path / "x")
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.bin was changed"):
        read.sentence(0)
