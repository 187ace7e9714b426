"""The report of a cleaning."""

import itertools
import json

from rskip.corpora.cleaning import CleaningReport
from rskip.corpora.corpus import CleaningOptions

OPTIONS = CleaningOptions(empty=True, max_words=80, leaks=True, duplicates=True)


def europarl() -> CleaningReport:
    report = CleaningReport.of(OPTIONS)
    report.count("europarl-v7", None, pairs=1_234_000)
    for reason in ("empty", "too long", "too long", "leak"):
        report.count("europarl-v7", reason, held_out_sides=(True, True))
    report.count("europarl-v7", None, held_out_sides=(True, False))
    report.count("europarl-v7", None, held_out_sides=(True, True))
    report.drop_duplicates("europarl-v7", 34_002)
    return report


def news() -> CleaningReport:
    report = CleaningReport.of(OPTIONS)
    report.count("news", None)
    report.count("news", "empty", pairs=2)
    return report


def test_table() -> None:
    expected = """\
                 pairs  empty  too long  leak  duplicate       kept
europarl-v7  1,234,006      1         2     1     34,002  1,200,000  97.24 %
news                 3      2         0     0          0          1  33.33 %
total        1,234,009      3         2     1     34,002  1,200,001  97.24 %
pairs dropped because they are also in valid or test: 1
pairs kept although one sentence is also in valid or test: source 2, target 1 (before duplicates were dropped)
"""
    assert (europarl() + news()).table() == expected


def test_pairs_of_valid_and_test_that_stay() -> None:
    report = CleaningReport.of(CleaningOptions(empty=True))
    for reason, left_in in ((None, True), (None, False), ("empty", True), (None, True)):
        report.count("a", reason, left_in=left_in)
    assert report.table().splitlines()[-1] == "pairs kept although they are also in valid or test: 2"
    assert report.to_dict()["texts"]["a"]["also in valid or test"] == 2
    none = CleaningReport.of(CleaningOptions(empty=True))
    none.count("b", None, left_in=False)
    assert none.table().count("\n") == 2 and none.to_dict()["total"]["also in valid or test"] == 0
    assert CleaningReport.from_dict((report + none).to_dict()) == none + report


def test_json() -> None:
    values = (europarl() + news()).to_dict()
    assert values["reasons"] == ["empty", "too long", "leak", "duplicate"]
    assert values["texts"]["europarl-v7"] == {
        "pairs": 1_234_006,
        "dropped": {"empty": 1, "too long": 2, "leak": 1, "duplicate": 34_002},
        "kept": 1_200_000,
        "source also in valid or test": 2,
        "target also in valid or test": 1,
    }
    assert values["total"]["kept"] == 1_200_001
    again = CleaningReport.from_dict(json.loads(json.dumps(values)))
    assert again == europarl() + news() != europarl()
    assert again.table() == (europarl() + news()).table()


def test_the_order_of_adding_changes_nothing() -> None:
    third = CleaningReport.of(OPTIONS)
    third.count("commoncrawl", "leak")
    third.count("news", None, held_out_sides=(False, True))
    texts = {
        json.dumps(sum(reports, CleaningReport.of(OPTIONS)).to_dict())
        for reports in itertools.permutations((europarl(), news(), third))
    }
    assert len(texts) == 1
    assert json.loads(texts.pop())["texts"]["news"]["pairs"] == 4
