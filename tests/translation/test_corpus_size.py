"""The size of a corpus as fairseq-train meets it: its batches are fairseq's."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from rskip.corpora.prepared import PreparedPairs
from rskip.translation.corpus_size import CorpusSize, count_batches, measure


def test_batches_are_counted_as_fairseq_makes_them() -> None:
    batch_by_size = pytest.importorskip("fairseq.data.data_utils").batch_by_size
    draw = random.Random(1)
    for trial in range(100):
        lengths = [draw.randint(1, 30) for _ in range(draw.randint(1, 300))]
        if trial % 2:
            lengths.sort()
        most = draw.choice([30, 64, 100, 500, 2048])
        batches = batch_by_size(
            np.arange(len(lengths)), lengths.__getitem__, num_tokens_vec=np.array(lengths), max_tokens=most,
            max_sentences=None, required_batch_size_multiple=8,
        )  # fmt: skip
        assert count_batches(lengths, most) == len(batches), (lengths, most)


def test_a_sentence_longer_than_a_batch_is_in_none() -> None:
    lengths = np.array([40, 5, 5], dtype=np.int32)
    assert CorpusSize(source=lengths, target=lengths, vocabulary=9, joined=True).batches(30) == 1


def write_side(folder: Path, language: str, sizes: list[int], dictionary: str) -> None:
    places = [4 * sum(sizes[:row]) for row in range(len(sizes))]
    header = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 4, len(sizes))
    index = struct.pack(f"<{len(sizes)}i{len(sizes)}q", *sizes, *places)
    (folder / f"train.en-de.{language}.idx").write_bytes(header + index)
    (folder / f"train.en-de.{language}.bin").write_bytes(bytes(4 * sum(sizes)))
    (folder / f"dict.{language}.txt").write_text(dictionary)


def data_in(folder: Path) -> PreparedPairs:
    return PreparedPairs(
        path=folder, corpus="x", raw=True, source="en", target="de", dictionaries={}, splits={"train": [folder]},
        shards=0, sha256="",
    )  # fmt: skip


@pytest.mark.parametrize(("german", "vocabulary", "joined"), [("a 3\nb 2\n", 6, True), ("a 3\n", 11, False)])
def test_a_folder_is_measured(tmp_path: Path, german: str, vocabulary: int, joined: bool) -> None:
    write_side(tmp_path, "en", [3, 9], "a 3\nb 2\n")
    write_side(tmp_path, "de", [4, 2], german)
    size = measure(data_in(tmp_path))
    assert (size.pairs, size.tokens, size.vocabulary, size.joined) == (2, 13, vocabulary, joined)
