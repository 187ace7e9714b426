"""Reading folders of fairseq's mmap format: every type, any part, damage, and folders that hold something else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rskip.corpora.binarised import MmapSentences, MmapWriter
from rskip.corpora.inspection import inspect_data
from rskip.corpora.prepared import find_pairs
from rskip.corpora.record import write_record
from tests.corpora.mmap_files import mmap_files, write_split

DICTIONARY = Path("dict.en.txt")
SENTENCES = [[5, 6, 7, 2], [2], [4, 2], [], [9, 9, 5], [100, 2]]


@pytest.mark.parametrize("code", range(1, 11))
def test_every_type_that_fairseq_writes(tmp_path: Path, code: int) -> None:
    mmap_files(tmp_path / "x", SENTENCES, code=code)
    read = MmapSentences(tmp_path / "x")
    assert [read.sentence(number).tolist() for number in range(len(read))] == SENTENCES
    # an end mark is left out only where there is one, at the end
    lengths, counts = read.read(range(0, 6), vocabulary=101, dictionary=DICTIONARY)
    assert lengths.tolist() == [3, 0, 1, 0, 3, 1]
    expected = np.bincount([each for sentence in SENTENCES for each in sentence], minlength=101)
    assert counts.tolist() == expected.tolist()
    lengths, counts = read.read(range(3, 5), vocabulary=10, dictionary=DICTIONARY)
    assert (lengths.tolist(), counts.tolist()) == ([0, 3], [0, 0, 0, 0, 0, 1, 0, 0, 0, 2])


@pytest.mark.parametrize("vocabulary", [9_000, 65_499, 65_500])
def test_what_is_written_is_fairseqs(tmp_path: Path, vocabulary: int) -> None:
    indexed_dataset = pytest.importorskip("fairseq.data.indexed_dataset")
    fairseqs = indexed_dataset.make_builder(tmp_path / "f.bin", impl="mmap", vocab_size=vocabulary)
    with MmapWriter(tmp_path / "x", vocabulary) as writer:
        writer.add([token for sentence in SENTENCES[:2] for token in sentence], [4, 1])
        for sentence in SENTENCES[2:]:
            writer.add(sentence, [len(sentence)])
    for sentence in SENTENCES:
        fairseqs.add_item(torch.tensor(sentence, dtype=torch.int32))
    fairseqs.finalize(tmp_path / "f.idx")
    for kind in ("bin", "idx"):
        assert (tmp_path / f"x.{kind}").read_bytes() == (tmp_path / f"f.{kind}").read_bytes()


@pytest.mark.parametrize(("code", "index"), [(8, 100), (5, -1), (5, 1 << 60)])
def test_an_index_that_the_dictionary_lacks(tmp_path: Path, code: int, index: int) -> None:
    mmap_files(tmp_path / "x", [[5, 2], [6, 7, 2], [5, 5, 8, 2], [7, index, 2], [index, 2]], code=code)
    with pytest.raises(ValueError, match=rf"x\.bin: sentence 4 has token {index}, but dict\.en\.txt has only 9 tokens"):
        MmapSentences(tmp_path / "x").read(range(1, 5), vocabulary=9, dictionary=DICTIONARY)


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
def test_damaged_files(tmp_path: Path, name: str, damage: Callable[[bytes], bytes], message: str) -> None:
    mmap_files(tmp_path / "x", SENTENCES)
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(ValueError, match=rf"{tmp_path}/x\..*({message})"):
        read = MmapSentences(tmp_path / "x")
        for rows in (range(2), range(2, len(read))):
            read.read(rows, vocabulary=101, dictionary=DICTIONARY)


def test_a_file_that_another_process_truncates_is_told(tmp_path: Path) -> None:
    mmap_files(tmp_path / "x", SENTENCES)
    read = MmapSentences(tmp_path / "x")
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"x\.bin was changed"):
        read.sentence(0)


def test_order_of_splits_and_languages_with_hyphens(tmp_path: Path) -> None:
    for split in ("test2", "train", "test", "valid", "test10", "test1", "dev"):
        for language in ("pt-br", "en"):
            mmap_files(tmp_path / f"{split}.pt-br-en.{language}", [[4, 2]])
    for language in ("pt-br", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("a 1\n")
    found = find_pairs(tmp_path)
    assert found.languages == ("pt-br", "en")
    assert list(found.splits) == ["train", "valid", "test", "test1", "test2", "test10", "dev"]


def test_folders_of_something_else(tmp_path: Path) -> None:
    def refused(name: str, message: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error) as caught:
            inspect_data(tmp_path / name)
        assert message in str(caught.value) and str(tmp_path / name) in str(caught.value)

    def made(name: str) -> Path:
        return write_split(tmp_path / name, "train", [("a", "ein"), ("two", "zwei")])

    refused("none", "does not exist", FileNotFoundError)
    (tmp_path / "file").touch()
    refused("file", "is a file", FileNotFoundError)
    for name in ("other", "alone"):
        (tmp_path / name).mkdir()
    refused("other", "holds no binarised data")
    made("other/bin")
    refused("other", "bin in it does")
    mmap_files(tmp_path / "alone/train", [[2]])
    refused("alone", "holds one language")
    mmap_files(made("several") / "train.en-fr.fr", [[2]])
    refused("several", "several language pairs")
    (made("bare") / "dict.de.txt").unlink()
    refused("bare", "dict.de.txt is missing", FileNotFoundError)
    (made("half") / "train.en-de.de.bin").unlink()
    refused("half", "train.en-de.de.bin", FileNotFoundError)
    mmap_files(made("uneven") / "train.en-de.de", [[2], [2], [2]])
    refused("uneven", "has 2 sentences and train.en-de.de.idx 3")
    made("shards/shard1")
    (made("shards/shard2") / "dict.en.txt").write_text("b 1\n")
    refused("shards", "differs from")
    (made("small") / "dict.de.txt").write_text("ein 1\n")
    refused("small", "sentence 2 has token 7")


RECORD = {"corpus": "mine-en-de", "sentences": {"train": 1}, "dictionary_size": 5}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = write_split(tmp_path / "data", "train", [("a", "ein")])
    write_record(folder, RECORD)
    return folder


def test_a_prepared_folder_has_a_checksum_of_its_files(data: Path) -> None:
    found = find_pairs(data)
    assert (found.corpus, found.source, found.target, found.splits) == ("mine-en-de", "en", "de", {"train": [data]})
    assert found.raw
    (data / "dict.en.txt").write_text("b 1\n")
    (data / "corpus.json").unlink()
    write_record(data, RECORD)
    assert find_pairs(data).sha256 != found.sha256
    (data / "train.en-de.de.bin").write_bytes(b"d")
    with pytest.raises(ValueError, match=r"data is damaged \(train.en-de.de.bin has 1 bytes, not 4\)"):
        find_pairs(data)
    (data / "dict.de.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"dict\.de\.txt is missing"):
        find_pairs(data)


def test_a_folder_of_fairseq_preprocess_has_its_own_name_and_checksum(data: Path) -> None:
    (data / "corpus.json").unlink()
    found = find_pairs(data)
    assert (found.raw, found.corpus) == (False, "data")
    (data / "train.en-de.de.bin").write_bytes(b"as long")
    assert find_pairs(data) == found
    (data / "train.en-de.de.idx").write_bytes(b"other")
    assert find_pairs(data).sha256 != found.sha256


def test_captions_have_a_command_of_their_own(tmp_path: Path) -> None:
    record = {"corpus": "flickr8k", "captions": {"train": 3}, "files": {}, "sizes": {}}
    (tmp_path / "corpus.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="holds captions of images: .* a recipe of kind"):
        find_pairs(tmp_path)
