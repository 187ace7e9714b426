"""An inspection as text."""

from __future__ import annotations

import json

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.corpus import CleaningOptions
from rskip.corpora.inspection import inspect_data
from rskip.corpora.inspection.text_form import text_form

WHOLE = """{folder}: en → de

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


def test_whole_text(data):
    found = inspect_data(data, lopsided=1, examples=5)
    before, heading, after = text_form(found).partition("\nrandom pairs of train:\n")
    assert before == WHOLE.format(folder=data)
    assert after.startswith("  line 1 (3 and 3 tokens)\n    en  a dog runs\n    de  ein Hund läuft\n  line 2 (")
    assert "\n  line 4 (0 and 1 tokens)\n    en\n    de  Hund\n" in after


def test_corpus_options_cleaning_and_shards(tmp_path, write_split):
    for number in (1, 2):
        write_split(tmp_path / f"shard{number}", "train", [("a dog", "ein Hund")])
    options = {"subwords": "bpe", "size": 20, "sample": None, "leaks": True, "empty": False}
    (tmp_path / "corpus.json").write_text(json.dumps({"corpus": "tiny-en-de", "options": options, "files": {}}))
    report = CleaningReport.of(CleaningOptions(empty=True))
    report.count("news", "empty")
    report.count("news", None, pairs=2)
    (tmp_path / "cleaning.json").write_text(json.dumps(report.to_dict()))
    text = text_form(inspect_data(tmp_path))
    assert text.startswith(
        f"{tmp_path}: tiny-en-de, en → de, 2 shards\nprepared with: subwords bpe, size 20, leaks True, empty False\n\n"
    )
    table = "".join(f"  {line}\n" for line in report.table().splitlines())
    assert f"\n\ntraining pairs dropped by cleaning:\n{table}\n" in text


def test_no_train_and_nothing_at_all(tmp_path, write_split):
    write_split(tmp_path, "test", [("a", "ein")])
    text = text_form(inspect_data(tmp_path))
    assert ["en", "8", "0", *"-------"] in [line.split() for line in text.splitlines()]
    write_split(tmp_path, "train", [])
    text = text_form(inspect_data(tmp_path))
    assert ["train", "0", *"--------"] in [line.split() for line in text.splitlines()]
    assert "random pairs" not in text
