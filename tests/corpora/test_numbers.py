"""The corpus that is made from a seed."""

import hashlib
import random
import string
import sys
from collections.abc import Iterable

import pytest
from num2words import num2words

from rskip.corpora.corpus import Pair
from rskip.corpora.numbers import NUMBERS, NUMBERS_CORPORA, TEMPLATES, WORDS

CORPUS = NUMBERS_CORPORA[0]


def slots(text: str) -> list[str]:
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)


def test_templates_and_words_are_one_to_one() -> None:
    for template in TEMPLATES:
        english, german = map(slots, template)
        assert english == german and len(set(english)) == len(english)
        assert set(english) <= {*WORDS, *NUMBERS} and set(english) & set(NUMBERS)
    for pairs in (TEMPLATES, *WORDS.values()):
        for side in zip(*pairs, strict=True):
            assert len(set(side)) == len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "de"])
def test_numbers_are_one_to_one(language: str) -> None:
    assert len({num2words(number, lang=language) for number in range(10_000)}) == 10_000
    assert len({num2words(number, lang=language, to="ordinal") for number in range(1, 100)}) == 99
    assert len({num2words(number, lang=language, to="year") for number in range(1101, 2100)}) == 999


def test_german_numbers_are_composed() -> None:
    class Draw(random.Random):
        def __init__(self, *values: int) -> None:
            super().__init__(0)
            self.values = list(values)

        def randrange(self, *args: int) -> int:  # type: ignore[override]
            return self.values.pop(0)

    for kind, values, expected in (
        ("cardinal", (2, 21), ("twenty-one", "einundzwanzig")),
        ("cardinal", (3, 301), ("three hundred and two", "dreihundertzwei")),
        ("year", (1987,), ("nineteen eighty-seven", "neunzehnhundertsiebenundachtzig")),
        ("ordinal", (53,), ("fifty-third", "dreiundfünfzigste")),
        ("ordinal_day", (3,), ("third", "dritte")),
    ):
        assert NUMBERS[kind](Draw(*values)) == expected
    money = NUMBERS["money"](Draw(2145))
    assert money[0].startswith("twenty-one ") and money[1].startswith("einundzwanzig ")
    assert money[1].endswith("und fünfundvierzig Cent")


def gathered(generated: Iterable[tuple[str, Pair]]) -> dict[str, list[Pair]]:
    splits: dict[str, list[Pair]] = {}
    for split, pair in generated:
        splits.setdefault(split, []).append(pair)
    return splits


def test_same_seed_same_sentences() -> None:
    made = gathered(CORPUS.generate(pairs=300, seed=1))
    first = "".join("".join(pair) for split in sorted(made) for pair in made[split])
    assert hashlib.sha256(first.encode()).hexdigest()[:16] == "ea1e25e0d2a9c9fb"  # as records were made with
    assert {split: len(pairs) for split, pairs in made.items()} == {"train": 300, "valid": 1000, "test": 1000}
    assert gathered(CORPUS.generate(pairs=300, seed=2))["test"] != made["test"]
    # More training pairs leave valid and test as they are, so that scores can be compared.
    more = gathered(CORPUS.generate(pairs=500, seed=1))
    assert (more["valid"], more["test"], more["train"][:300]) == (made["valid"], made["test"], made["train"])


def test_no_sentence_comes_twice_in_either_language() -> None:
    made = gathered(CORPUS.generate(pairs=2000, seed=3))
    pairs = [pair for split in made.values() for pair in split]
    for side in zip(*pairs, strict=True):
        assert len(set(side)) == 4000
    assert all(sentence[0].isupper() and sentence.endswith(".") for pair in pairs for sentence in pair)


def test_more_pairs_than_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rskip.corpora.numbers.VALID_PAIRS", 0)
    monkeypatch.setattr("rskip.corpora.numbers.TEST_PAIRS", 0)
    monkeypatch.setattr("rskip.corpora.numbers.TEMPLATES", [("{ordinal} {city}.", "{ordinal} {city}.")])
    with pytest.raises(ValueError, match="pairs is 9000: expected at most about 792"):
        list(CORPUS.generate(pairs=9_000, seed=1))


def test_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(ValueError, match="^a corpus of numbers needs num2words: install the extra numbers with"):
        next(CORPUS.generate(pairs=1, seed=1))
