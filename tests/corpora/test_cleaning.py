"""Which pairs are dropped, duplicates, the filter of languages, and the report."""

from __future__ import annotations

import gzip
import pickle
import random
import sys
from pathlib import Path

import pytest

from rskip.corpora.cleaning import CleaningReport, PairCleaner, languages, report_table
from rskip.corpora.cleaning.pairs import find_duplicates, pair_digest
from rskip.corpora.corpus import CleaningOptions, Pair

LANGUAGES = ("en", "de")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("a b", "c d"), None),
        (("", "c"), "empty"),
        (("a", ""), "empty"),
        (("\u200b \ufeff", "c"), "empty"),
        (("a b c d", "e f g h"), None),
        (("a b c d e", "f g h"), "too long"),
        (("a b c", "d e f g h"), "too long"),
        (("a", "b c d e f"), "too long"),  # lopsided too: the first reason counts
        (("a b", "c d e"), None),  # just the ratio
        (("a", "b c"), "lopsided"),
        (("a b c d", "e f"), "lopsided"),
        (("x y", "z"), "lopsided"),  # a leak too
        (("x y", "z w"), "leak"),
        (("z w", "x y"), None),  # the other way round it is no leak
    ],
)
def test_reasons(words: Pair, reason: str | None) -> None:
    options = CleaningOptions(empty=True, max_words=4, max_ratio=1.5, leaks=True)
    cleaner = PairCleaner(options, languages=LANGUAGES, held_out=[("x y", "z w"), ("x y", "z")])
    assert cleaner.reason(words) == pickle.loads(pickle.dumps(cleaner)).reason(words) == reason


@pytest.mark.parametrize("words", [("", ""), ("a", ""), ("a " * 999 + "a", "b"), ("x", "y")])
def test_the_defaults_drop_nothing(words: Pair) -> None:
    cleaner = PairCleaner(CleaningOptions(), languages=LANGUAGES, held_out=[words])
    assert cleaner.reason(words) is None
    assert cleaner.held_out_sides(words) == (False, False)


def test_an_empty_side_is_lopsided_where_empty_sides_may_stay() -> None:
    cleaner = PairCleaner(CleaningOptions(max_ratio=9), languages=LANGUAGES)
    assert [cleaner.reason(words) for words in (("", "a"), ("", ""))] == ["lopsided", None]


def test_held_out_sides() -> None:
    held_out = [("thank you .", "danke ."), ("yes .", "ja ."), ("yes .", "ja ."), ("", "so .")]
    cleaner = PairCleaner(CleaningOptions(leaks=True), languages=LANGUAGES, held_out=held_out)
    sides = {
        ("thank you .", "danke ."): (True, True),
        ("thank you .", "vielen dank ."): (True, False),
        ("thanks .", "danke ."): (False, True),
        ("danke .", "thank you ."): (False, False),
        ("", "nein ."): (False, False),
    }
    assert {words: cleaner.held_out_sides(words) for words in sides} == sides
    assert [words for words in sides if cleaner.reason(words) == "leak"] == [("thank you .", "danke .")]


@pytest.mark.parametrize("different", [1, 3, 8_000])
def test_of_equal_pairs_the_first_stays(different: int) -> None:
    draw = random.Random(different)
    digests = [pair_digest((str(draw.randrange(different)), "x")) for _ in range(10_000)]
    seen: set[bytes] = set()
    expected = [row for row, digest in enumerate(digests) if digest in seen or seen.add(digest)]
    assert find_duplicates(b"".join(digests)).tolist() == expected
    assert find_duplicates(b"").tolist() == []


def test_digests() -> None:
    # blake2b of "a b\nc" with 8 bytes, by coreutils' b2sum -l 64
    assert pair_digest(("a b", "c")).hex() == "571bf6b5dc33491d"
    assert len({pair_digest(words) for words in (("a", "b"), ("b", "a"), ("a b", ""), ("", "a b"))}) == 4


ENGLISH = "The committee has not yet decided whether the report will be published this year ."
GERMAN = "Der Ausschuss hat noch nicht entschieden , ob der Bericht dieses Jahr veröffentlicht wird ."
FRENCH = "La commission n &apos;a pas encore décidé si le rapport sera publié cette année @-@ ci ."


def test_pairs_in_other_languages() -> None:
    pytest.importorskip("py3langid")
    cleaner = PairCleaner(CleaningOptions(languages=True), languages=LANGUAGES)
    reasons: dict[Pair, str | None] = {
        (ENGLISH, GERMAN): None,
        (GERMAN, ENGLISH): "wrong language",
        (ENGLISH, ENGLISH): "wrong language",
        (FRENCH, GERMAN): "wrong language",
        (ENGLISH, FRENCH): "wrong language",
        ("merci bien .", "de rien ."): None,  # too short to tell
        ("", ""): None,
    }
    assert {words: cleaner.reason(words) for words in reasons} == reasons
    with pytest.raises(ValueError, match="does not know the language 'qq'"):
        PairCleaner(CleaningOptions(languages=True), languages=("en", "qq"))


def test_languages_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    languages._identifier.cache_clear()
    with pytest.raises(ValueError, match="needs py3langid: install the extra langid"):
        PairCleaner(CleaningOptions(languages=True), languages=LANGUAGES)


def pairs(folder: Path, *names: str) -> list[Pair]:
    sides = []
    for name in names:
        text = gzip.decompress((folder / f"{name}.gz").read_bytes()).decode()
        sides.append([" ".join(line.split()) for line in text.removesuffix("\n").split("\n")])
    return list(zip(*sides, strict=True))


OPTIONS = CleaningOptions(empty=True, max_words=80, leaks=True, duplicates=True)
SOURCE, TARGET = "source also in valid or test", "target also in valid or test"


def report(options: CleaningOptions = OPTIONS) -> CleaningReport:
    made = CleaningReport(options)
    dropped = {"empty": 1, "too long": 2, "leak": 1, SOURCE: 2, TARGET: 1}
    made.add("europarl-v7", {"pairs": 1_234_000, **dropped}, {"empty": ("", "x\n" * 99), "leak": ("a", "b")})
    made.add("europarl-v7", {"pairs": 6, "duplicate": 34_002}, {"leak": ("c", "d")})
    made.add("news", {"pairs": 3, "empty": 2})
    return made


def test_table_of_the_report() -> None:
    assert report_table(report().to_dict()) == (
        """\
                 pairs  empty  too long  leak  duplicate       kept
europarl-v7  1,234,006      1         2     1     34,002  1,200,000  97.24 %
news                 3      2         0     0          0          1  33.33 %
total        1,234,009      3         2     1     34,002  1,200,001  97.24 %
pairs dropped because they are also in valid or test: 1
pairs kept although one sentence is also in valid or test: source 2, target 1 (before duplicates were dropped)
"""
        f'dropped as empty:  ""  {"x " * 28}x...\n'
        "dropped as leak:   a   b\n"
    )
    left_in = CleaningReport(CleaningOptions(empty=True))
    left_in.add("a", {"pairs": 4, "also in valid or test": 2})
    assert report_table(left_in.to_dict()).splitlines()[-1] == "pairs kept although they are also in valid or test: 2"


def test_json_of_the_report() -> None:
    values = report().to_dict()
    assert values["reasons"] == ["empty", "too long", "leak", "duplicate"]
    assert values["texts"]["europarl-v7"] == {
        "pairs": 1_234_006,
        "dropped": {"empty": 1, "too long": 2, "leak": 1, "duplicate": 34_002},
        "kept": 1_200_000,
        SOURCE: 2,
        TARGET: 1,
    }
    assert values["total"]["kept"] == 1_200_001
    none = CleaningReport(CleaningOptions(empty=True))
    none.add("b", {"pairs": 1, "also in valid or test": 0})
    assert none.to_dict()["total"]["also in valid or test"] == 0 and report_table(none.to_dict()).count("\n") == 2
