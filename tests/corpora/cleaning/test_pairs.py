"""Which pairs are dropped."""

import pickle

import pytest

from rskip.corpora.cleaning import PairCleaner
from rskip.corpora.corpus import CleaningOptions, Pair

LANGUAGES = ("en", "de")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("a b", "c d"), None),
        (("", "c"), "empty"),
        (("a", ""), "empty"),
        (("", ""), "empty"),
        (("\u200b \ufeff", "c"), "empty"),
        (("a b c d", "e f g h"), None),
        (("a b c d e", "f g h"), "too long"),
        (("a b c", "d e f g h"), "too long"),
        (("a", "b c d e f"), "too long"),  # lopsided too: the first reason counts
        (("a b", "c d e"), None),  # just the ratio
        (("a b c", "d e"), None),
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
        ("thank you .", "ja ."): (True, True),
        ("danke .", "thank you ."): (False, False),
        ("", "nein ."): (False, False),
    }
    assert {words: cleaner.held_out_sides(words) for words in sides} == sides
    assert [words for words in sides if cleaner.reason(words) == "leak"] == [("thank you .", "danke .")]
