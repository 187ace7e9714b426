"""Whole folders: what is found in them."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path

import pytest

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.inspection import find_data, inspect_data, inspection
from rskip.text import TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding


def test_hand_written_folder(data):
    found = inspect_data(data, seed=1).statistics
    train, valid = found["splits"]["train"], found["splits"]["valid"]
    assert list(found["splits"]) == ["train", "valid"]
    assert (train["sentences"], valid["sentences"]) == (5, 2)
    assert train["sides"]["en"]["lengths"] == {
        "tokens": 12, "empty": 1, "mean": 2.4, "median": 3,
        "percentiles": {"5": 0, "25": 1, "75": 3, "95": 5, "99": 5}, "longest": 5,
        "histogram": {"0": 1, "1": 1, "3": 2, "5": 1},
    }  # fmt: skip
    assert train["sides"]["de"]["unknown"] == 0
    assert (valid["sides"]["en"]["unknown"], valid["sides"]["en"]["unknown_rate"]) == (1, 0.25)
    assert (valid["sides"]["de"]["unknown"], valid["sides"]["de"]["unknown_rate"]) == (1, 0.25)
    # ratios 1, 4, 1/5 and 4/3; the fourth pair has an empty side
    assert train["ratio"]["overall"] == 13 / 12
    assert train["ratio"]["mean"] == pytest.approx((1 + 4 + 1 / 5 + 4 / 3) / 4)
    assert (train["ratio"]["median"], train["ratio"]["with_empty_side"]) == (1, 1)
    assert found["joint_dictionary"] is False
    # en: a 6, dog 2, runs 2, two 2; de: zwei 5, läuft 3, Hund 3, ein 2
    assert found["vocabulary"]["en"] == {
        "size": 8, "padding": 0, "used": 4, "used_rate": 1.0, "once": 0,
        "coverage": {"50": 1, "90": 4, "99": 4, "100": 4},
    }  # fmt: skip
    assert (found["vocabulary"]["de"]["size"], found["vocabulary"]["de"]["padding"]) == (9, 1)
    assert found["vocabulary"]["de"]["coverage"] == {"50": 2, "90": 4, "99": 4, "100": 4}
    assert found["lopsided"] == [
        {"number": 3, "source": "a a a a a", "target": "ein", "lengths": [5, 1]},
        {"number": 2, "source": "two", "target": "zwei zwei zwei zwei", "lengths": [1, 4]},
        {"number": 5, "source": "two dog runs", "target": "zwei Hund läuft läuft", "lengths": [3, 4]},
    ]
    assert (found["corpus"], found["cleaning"], found["shards"]) == (None, None, 0)


def test_unknown_words_are_shown_and_examples_depend_on_the_seed_alone(data):
    for path in data.glob("train.*"):
        path.unlink()
    found = inspect_data(data, examples=5).statistics
    assert found["shown_split"] == "valid"
    assert [(pair["source"], pair["target"]) for pair in found["examples"]] == [
        ("a <unk> runs", "ein Hund läuft"),
        ("dog", "<unk>"),
    ]
    assert found["vocabulary"]["en"]["used"] is None


def test_text_is_decoded_by_the_pipeline_beside_the_data(data):
    config = TextConfig(source_language="en", target_language="de")
    TextPipeline(config, BytePairEncoding("#version: 0.2\nH u\n")).save(data / "text")
    (data / "dict.en.txt").write_text("a 1\ndo@@ 1\ng 1\n&apos;s 1\n")
    (data / "dict.de.txt").write_text("Hu@@ 1\nnd 1\n&quot; 1\n. 1\n@-@ 1\n")
    found = inspect_data(data, lopsided=1, examples=0).statistics
    assert (found["lopsided"][0]["source"], found["lopsided"][0]["target"]) == ("a a a a a", "Hu")
    (data / "dict.en.txt").write_text("&quot; 1\ndo@@ 1\ng 1\n&apos;s 1\n")
    row = inspect_data(data, lopsided=5, examples=0).statistics["lopsided"][2]
    assert (row["number"], row["source"]) == (5, "'s dog")


def test_corpus_and_cleaning_are_passed_on(data):
    record = {"corpus": "tiny", "options": {"subwords": "bpe"}, "files": {}, "more": 1}
    (data / "corpus.json").write_text(json.dumps(record))
    report = CleaningReport.of(CleaningOptions(empty=True)).to_dict()
    (data / "cleaning.json").write_text(json.dumps(report))
    found = inspect_data(data).statistics
    assert found["corpus"] == {"name": "tiny", "options": {"subwords": "bpe"}}
    assert found["cleaning"] == report
    for wrong, said in (('{"texts": {}}', "reasons"), ("[]", "a list"), ("{", "not valid JSON")):
        (data / "cleaning.json").write_text(wrong)
        with pytest.raises(ValueError, match=f"cleaning.json: .*{said}.*; move the folder away"):
            inspect_data(data)


def test_shards_and_blocks_change_nothing(tmp_path, write_split, monkeypatch):
    draw = random.Random(2)
    english, german = ["a", "dog", "runs", "two", "cat"], ["ein", "Hund", "läuft", "zwei", "Katze"]
    pairs = [
        (" ".join(draw.choices(english, k=draw.randrange(9))), " ".join(draw.choices(german, k=draw.randrange(9))))
        for _ in range(500)
    ]
    write_split(tmp_path / "whole", "train", pairs)
    write_split(tmp_path / "whole", "valid", pairs[:7])
    # 11 shards: shard10 follows shard9; every shard has valid, of which one counts
    for number in range(11):
        write_split(tmp_path / "parts" / f"shard{number + 1}", "train", pairs[number * 50 : (number + 1) * 50])
        write_split(tmp_path / "parts" / f"shard{number + 1}", "valid", pairs[:7])
    whole = inspect_data(tmp_path / "whole", examples=20, lopsided=20).statistics
    monkeypatch.setattr(inspection, "_ROWS_AT_ONCE", 13)
    parts = inspect_data(tmp_path / "parts", examples=20, lopsided=20).statistics
    assert (whole.pop("shards"), parts.pop("shards")) == (0, 11)
    whole.pop("data"), parts.pop("data")

    def least_alike(row: int) -> tuple[float, int]:
        most, least = sorted((len(pairs[row][0].split()), len(pairs[row][1].split())), reverse=True)
        return (-most / max(least, 1), row)

    lopsided = sorted(range(500), key=least_alike)[:20]
    assert [pair["number"] for pair in whole["lopsided"]] == [row + 1 for row in lopsided]
    assert parts == whole
    assert parts["splits"]["train"]["sentences"] == 500
    assert parts["splits"]["valid"]["sentences"] == 7


def test_memory_does_not_grow_with_the_corpus(tmp_path, write_split, monkeypatch):
    monkeypatch.setattr(inspection, "_ROWS_AT_ONCE", 500)
    pairs = [("dog " * (number % 20), "Hund " * (number % 17)) for number in range(500)]
    peaks = []
    for times in (2, 40):
        folder = tmp_path / str(times)
        write_split(folder, "train", pairs * times)
        inspect_data(folder)  # what is imported or compiled on the way is not counted
        tracemalloc.start()
        inspect_data(folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_order_of_splits_and_languages_with_hyphens(tmp_path, write_mmap):
    for split in ("test2", "train", "test", "valid", "test10", "test1", "dev"):
        for language in ("pt-br", "en"):
            write_mmap(tmp_path / f"{split}.pt-br-en.{language}", [[4, 2]])
    for language in ("pt-br", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("a 1\n")
    found = find_data(tmp_path)
    assert found.languages == ("pt-br", "en")
    assert list(found.splits) == ["train", "valid", "test", "test1", "test2", "test10", "dev"]
    assert inspect_data(tmp_path).statistics["joint_dictionary"] is True


def test_empty_splits(tmp_path, write_split):
    write_split(tmp_path, "train", [])
    write_split(tmp_path, "valid", [("", "")])
    found = inspect_data(tmp_path).statistics
    assert found["splits"]["train"] == {"sentences": 0, "sides": {}, "ratio": None}
    assert found["vocabulary"]["en"]["coverage"] == {"50": 0, "90": 0, "99": 0, "100": 0}
    assert found["splits"]["valid"]["sides"]["en"]["unknown_rate"] is None
    assert (found["lopsided"], found["examples"]) == ([], [])


def test_folders_of_something_else(tmp_path, write_split, write_mmap):
    def refused(name: str, message: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error) as caught:
            inspect_data(tmp_path / name)
        assert message in str(caught.value) and str(tmp_path / name) in str(caught.value)

    def made(name: str) -> Path:
        write_split(tmp_path / name, "train", [("a", "ein"), ("two", "zwei")])
        return tmp_path / name

    refused("none", "does not exist", FileNotFoundError)
    (tmp_path / "file").touch()
    refused("file", "is a file", FileNotFoundError)
    for name in ("other", "alone"):
        (tmp_path / name).mkdir()
    refused("other", "holds no binarised data")
    made("other/bin")
    refused("other", "bin in it does")
    write_mmap(tmp_path / "alone/train", [[2]])
    refused("alone", "holds one language")
    write_mmap(made("several") / "train.en-fr.fr", [[2]])
    refused("several", "several language pairs")
    (made("bare") / "dict.de.txt").unlink()
    refused("bare", "dict.de.txt is missing", FileNotFoundError)
    (made("half") / "train.en-de.de.bin").unlink()
    refused("half", "train.en-de.de.bin", FileNotFoundError)
    write_mmap(made("uneven") / "train.en-de.de", [[2], [2], [2]])
    refused("uneven", "has 2 sentences and train.en-de.de.idx 3")
    made("shards/shard1")
    (made("shards/shard2") / "dict.en.txt").write_text("b 1\n")
    refused("shards", "differs from")
    (made("small") / "dict.de.txt").write_text("ein 1\n")
    refused("small", "sentence 2 has token 7")
