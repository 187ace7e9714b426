"""What `rskip inspect` finds in a folder: as numbers, text and a plot."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from rskip.corpora import inspection
from rskip.corpora.cleaning import CleaningReport, report_table
from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.inspection import (
    PERCENTS,
    draw,
    inspect_data,
    length_statistics,
    ratio_statistics,
    text_form,
    vocabulary_statistics,
)
from rskip.text import Dictionary, TextConfig, TextPipeline
from rskip.text.subwords import BytePairEncoding
from tests.corpora.mmap_files import write_split

TRAIN = [
    ("a dog runs", "ein Hund läuft"),
    ("two", "zwei zwei zwei zwei"),
    ("a a a a a", "ein"),
    ("", "Hund"),
    ("two dog runs", "zwei Hund läuft läuft"),
]
VALID = [("a cat runs", "ein Hund läuft"), ("dog", "Katze")]
TEXT = """{folder}: en → de

sizes, lengths in tokens (without the end mark), unknown tokens:
  split      sentences  tokens  mean  median  95 %  99 %  longest  empty  unknown
  train  en          5      12  2.40       3     5     5        5      1   0.00 %
         de          5      13  2.60       3     4     4        4      0   0.00 %
  valid  en          2       4  2.00       1     3     3        3      0  25.00 %
         de          2       4  2.00       1     3     3        3      0  25.00 %

target length divided by source length (de/en):
  split  all tokens  mean   5 %  median  95 %  an empty side
  train        1.08  1.63  0.20    1.00  4.00              1
  valid        1.00  1.00  1.00    1.00  1.00              0

vocabulary (a dictionary for each language; 4 tokens of its size are special): types that occur in train, types
that occur there once, and the most frequent types that make up each share of its tokens:
      size  padding  in train            once  50 %  90 %  99 %  100 %
  en     8        0         4  100.00 %     0     1     4     4      4
  de     9        1         4  100.00 %     0     2     4     4      4

pairs of train whose lengths differ most:
  line 3 (5 and 1 tokens)
    en  a a a a a
    de  ein
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of hand-written bytes: TRAIN and VALID."""
    write_split(tmp_path / "data-bin", "train", TRAIN)
    return write_split(tmp_path / "data-bin", "valid", VALID)


def test_hand_written_folder(data: Path) -> None:
    found = inspect_data(data).statistics
    train, valid = found["splits"]["train"], found["splits"]["valid"]
    assert train["sides"]["en"]["lengths"] == {
        "tokens": 12, "empty": 1, "mean": 2.4, "median": 3,
        "percentiles": {"5": 0, "25": 1, "75": 3, "95": 5, "99": 5}, "longest": 5,
        "histogram": {"0": 1, "1": 1, "3": 2, "5": 1},
    }  # fmt: skip
    assert (valid["sides"]["en"]["unknown"], valid["sides"]["en"]["unknown_rate"]) == (1, 0.25)
    # ratios 1, 4, 1/5 and 4/3; the fourth pair has an empty side
    assert train["ratio"]["overall"] == 13 / 12
    assert train["ratio"]["mean"] == pytest.approx((1 + 4 + 1 / 5 + 4 / 3) / 4)
    assert found["lopsided"] == [
        {"number": 3, "source": "a a a a a", "target": "ein", "lengths": [5, 1]},
        {"number": 2, "source": "two", "target": "zwei zwei zwei zwei", "lengths": [1, 4]},
        {"number": 5, "source": "two dog runs", "target": "zwei Hund läuft läuft", "lengths": [3, 4]},
    ]
    assert (found["corpus"], found["cleaning"], found["shards"], found["joint_dictionary"]) == (None, None, 0, False)
    text = text_form(inspect_data(data, lopsided=1, examples=5).statistics)
    before, _, after = text.partition("\nrandom pairs of train:\n")
    assert before == TEXT.format(folder=data)
    assert after.startswith("  line 1 (3 and 3 tokens)\n    en  a dog runs\n    de  ein Hund läuft\n  line 2 (")


def test_unknown_words_and_no_train(data: Path) -> None:
    for path in data.glob("train.*"):
        path.unlink()
    found = inspect_data(data, examples=5).statistics
    assert found["shown_split"] == "valid"
    sides = [(pair["source"], pair["target"]) for pair in found["examples"]]
    assert sides == [("a <unk> runs", "ein Hund läuft"), ("dog", "<unk>")]
    assert found["vocabulary"]["en"]["used"] is None
    assert ["en", "8", "0", *"-------"] in [line.split() for line in text_form(found).splitlines()]


def test_text_is_decoded_by_the_pipeline_beside_the_data(data: Path) -> None:
    config = TextConfig(source_language="en", target_language="de")
    TextPipeline(config, BytePairEncoding("#version: 0.2\nH u\n")).save(data / "text")
    (data / "dict.en.txt").write_text("&quot; 1\ndo@@ 1\ng 1\n&apos;s 1\n")
    (data / "dict.de.txt").write_text("Hu@@ 1\nnd 1\n&quot; 1\n. 1\n@-@ 1\n")
    found = inspect_data(data, lopsided=5, examples=0).statistics["lopsided"]
    assert found[0]["target"] == "Hu"
    assert (found[2]["number"], found[2]["source"]) == (5, "'s dog")


def test_corpus_cleaning_and_shards(tmp_path: Path) -> None:
    for number in (1, 2):
        write_split(tmp_path / f"shard{number}", "train", [("a dog", "ein Hund")])
    options = {"subwords": "bpe", "size": 20, "sample": None, "leaks": True}
    record = {"corpus": "tiny-en-de", "options": options, "files": {}, "sizes": {}, "more": 1}
    (tmp_path / "corpus.json").write_text(json.dumps(record))
    report = CleaningReport(CleaningOptions(empty=True))
    report.add("news", {"pairs": 3, "empty": 1})
    (tmp_path / "cleaning.json").write_text(json.dumps(report.to_dict()))
    found = inspect_data(tmp_path).statistics
    assert found["corpus"] == {"name": "tiny-en-de", "options": options}
    assert found["cleaning"] == report.to_dict()
    text = text_form(found)
    assert text.startswith(
        f"{tmp_path}: tiny-en-de, en → de, 2 shards\nprepared with: subwords bpe, size 20, leaks True\n\n"
    )
    table = "".join(f"  {line}\n" for line in report_table(report.to_dict()).splitlines())
    assert f"\n\ntraining pairs dropped by cleaning:\n{table}\n" in text
    for wrong, said in (('{"texts": {}}', "reasons"), ("[]", "a list"), ("{", "not valid JSON")):
        (tmp_path / "cleaning.json").write_text(wrong)
        with pytest.raises(ValueError, match=f"cleaning.json: .*{said}.*; move the folder away"):
            inspect_data(tmp_path)


def test_shards_and_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    english, german = ["a", "dog", "runs", "two", "cat"], ["ein", "Hund", "läuft", "zwei", "Katze"]
    pairs = [
        (" ".join(rng.choices(english, k=rng.randrange(9))),
         " ".join(rng.choices(german, k=rng.randrange(9))))
        for _ in range(500)
    ]  # fmt: skip
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
    assert parts == whole and parts["splits"]["valid"]["sentences"] == 7

    def least_alike(row: int) -> tuple[float, int]:
        shorter, longer = sorted(len(side.split()) for side in pairs[row])
        return (-longer / max(shorter, 1), row)

    lopsided = sorted(range(500), key=least_alike)[:20]
    assert [pair["number"] for pair in whole["lopsided"]] == [row + 1 for row in lopsided]


def test_empty_splits(tmp_path: Path) -> None:
    write_split(tmp_path, "train", [])
    write_split(tmp_path, "valid", [("", "")])
    found = inspect_data(tmp_path).statistics
    assert found["splits"]["train"] == {"sentences": 0, "sides": {}, "ratio": None}
    assert found["vocabulary"]["en"]["coverage"] == {"50": 0, "90": 0, "99": 0, "100": 0}
    assert found["splits"]["valid"]["sides"]["en"]["unknown_rate"] is None
    assert (found["lopsided"], found["examples"]) == ([], [])
    assert ["train", "0", *"--------"] in [line.split() for line in text_form(found).splitlines()]
    with pytest.raises(ValueError, match="train has no sentences to plot"):
        draw(inspect_data(tmp_path), tmp_path / "picture.svg")


def test_plot(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    found = inspect_data(data)
    for name in ("one.svg", "two.svg"):
        draw(found, tmp_path / name)
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert (tmp_path / "two.svg").read_text(encoding="utf-8") == svg
    text = "\n".join(re.findall(r"<!-- (.*?) -->", svg))  # matplotlib's, beside the outlines of the letters
    for words in ("data-bin (en → de), train: 5 pairs", "en: mean 2.4, median 3, longest 5", "en: 4 types in train"):
        assert words in text


def nearest_rank(values: list, percent: int):
    """The definition: the value at rank ceil(percent/100 · n) of the sorted values."""
    return sorted(values)[max(1, math.ceil(percent * len(values) / 100)) - 1]


def test_lengths_and_ratios() -> None:
    """Against plain Python over all the single values."""
    rng = random.Random(3)
    pairs = [(rng.randrange(25), rng.choice([0, 1, 2, 3, 40, 2**31 - 1])) for _ in range(700)]
    ratios = [target / source for source, target in pairs if source and target]
    lengths = np.array(pairs, dtype=np.int32).T
    ratio = ratio_statistics(lengths)
    assert ratio["with_empty_side"] == 700 - len(ratios)
    assert ratio["overall"] == sum(pair[1] for pair in pairs) / sum(pair[0] for pair in pairs)
    for side, result, values in (
        (0, length_statistics(lengths[0]), [pair[0] for pair in pairs]),
        (1, length_statistics(lengths[1]), [pair[1] for pair in pairs]),
        (None, ratio, ratios),
    ):
        assert result["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert result["median"] == nearest_rank(values, 50)
        assert result["percentiles"] == {str(percent): nearest_rank(values, percent) for percent in PERCENTS}
        if side is not None:
            assert (result["tokens"], result["longest"]) == (sum(values), max(values))
            assert result["histogram"] == {str(length): values.count(length) for length in sorted(set(values))}


def test_vocabulary() -> None:
    dictionary = Dictionary(["a", "b", "c", "d", "madeupwords", "madeupword0000", "madeupword0001"])
    result = vocabulary_statistics(dictionary, np.array([6, 3, 1]))
    assert (result["size"], result["padding"]) == (11, 2)
    assert (result["used"], result["used_rate"], result["once"]) == (3, 3 / 5, 1)
    assert result["coverage"] == {"50": 1, "90": 2, "99": 3, "100": 3}
    frequencies = np.array([50, 30, 10, 9, 1])  # a bound is reached exactly
    assert vocabulary_statistics(dictionary, frequencies)["coverage"] == {"50": 1, "90": 3, "99": 4, "100": 5}
