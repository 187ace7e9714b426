"""A prepared data folder is found by its path; every other folder is refused in one line that says what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rskip.corpora.prepared import find_pairs
from rskip.corpora.record import write_record

RECORD = {"corpus": "mine-en-de", "sentences": {"train": 1}, "dictionary_size": 5}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "pipeline.json").write_text("{}")
    for language in ("en", "de"):
        (folder / f"dict.{language}.txt").write_text("a 1\n")
        (folder / f"train.en-de.{language}.idx").write_bytes(b"index")
        (folder / f"train.en-de.{language}.bin").write_bytes(b"data")
    write_record(folder, RECORD)
    return folder


def test_it_has_languages_shards_and_a_checksum_of_its_files(data: Path) -> None:
    found = find_pairs(data)
    assert (found.corpus, found.source, found.target, found.splits) == ("mine-en-de", "en", "de", ("train",))
    assert found.folders == [data]
    (data / "dict.en.txt").write_text("b 1\n")
    (data / "corpus.json").unlink()
    write_record(data, RECORD)
    assert find_pairs(data).sha256 != found.sha256


def test_a_file_that_is_gone_or_cut_off_is_named(data: Path) -> None:
    (data / "train.en-de.de.bin").write_bytes(b"d")
    with pytest.raises(
        ValueError, match=r"data is damaged \(train.en-de.de.bin has 1 bytes, not 4\): prepare it again"
    ):
        find_pairs(data)
    (data / "text" / "pipeline.json").unlink()
    with pytest.raises(ValueError, match=r"data lacks text/pipeline.json: prepare it again"):
        find_pairs(data)


def test_a_folder_of_fairseq_preprocess_has_its_own_name_and_checksum(data: Path) -> None:
    assert find_pairs(data).raw
    (data / "corpus.json").unlink()
    found = find_pairs(data)
    assert (found.raw, found.corpus) == (False, "data")
    (data / "train.en-de.de.bin").write_bytes(b"as long")
    assert find_pairs(data) == found
    (data / "train.en-de.de.idx").write_bytes(b"other")
    assert find_pairs(data).sha256 != found.sha256


def test_captions_have_a_command_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_text(json.dumps({"corpus": "flickr8k", "captions": {"train": 3}, "files": {}}))
    with pytest.raises(ValueError, match="holds captions of images: .* a recipe of kind"):
        find_pairs(tmp_path)
