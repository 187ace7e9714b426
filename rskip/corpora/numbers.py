"""Generates a corpus from a seed: sentences with spelled-out integers, ordinals, years and amounts of money.

Each sentence has exactly one translation, so exact matches can be counted. Numbers must be composed: twenty-one is
einundzwanzig.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice

from rskip.corpora.corpus import GeneratedCorpus, Pair, PrepareDefaults
from rskip.extras import extra
from rskip.settings.errors import SettingError

with extra("translation", what="a corpus of text"):
    import numpy as np

VALID_PAIRS = TEST_PAIRS = 1_000
_NEW = 100_000  # digests that are not sorted

# English and German. A name in braces is a slot that gets the same content on both sides.
TEMPLATES = (
    ("there are {cardinal} {plural} in {city}.", "in {city} gibt es {cardinal} {plural}."),
    ("{name} counted {cardinal} {plural} on {day}.", "{name} zählte am {day} {cardinal} {plural}."),
    ("we need {cardinal} {plural} for {name}.", "wir brauchen {cardinal} {plural} für {name}."),
    ("{name} found {cardinal} {plural} near {city}.", "{name} fand {cardinal} {plural} bei {city}."),
    ("the shop sold {cardinal} {plural} in {month}.", "der Laden verkaufte im {month} {cardinal} {plural}."),
    ("{cardinal} {plural} arrived in {city} on {day}.", "{cardinal} {plural} kamen am {day} in {city} an."),
    ("today {city} has {cardinal} {plural}.", "heute hat {city} {cardinal} {plural}."),
    (
        "{name} was born in {city} on the {ordinal_day} of {month}.",
        "{name} wurde am {ordinal_day}n {month} in {city} geboren.",
    ),
    (
        "{name} comes to {city} on the {ordinal_day} of {month}.",
        "{name} kommt am {ordinal_day}n {month} nach {city}.",
    ),
    ("{name} wrote the {ordinal} letter in {month}.", "{name} schrieb im {month} den {ordinal}n Brief."),
    ("{name} lives on the {ordinal} floor in {city}.", "{name} wohnt in {city} im {ordinal}n Stock."),
    ("{name} won the {ordinal} race on {day}.", "{name} gewann am {day} das {ordinal} Rennen."),
    ("the {ordinal} train to {city} leaves on {day}.", "der {ordinal} Zug nach {city} fährt am {day}."),
    ("{name} read the {ordinal} page on {day}.", "{name} las am {day} die {ordinal} Seite."),
    ("{name} moved to {city} in {year}.", "{name} zog {year} nach {city}."),
    ("{building} in {city} was built in {year}.", "{building} in {city} wurde {year} gebaut."),
    ("in {year} {name} wrote a book about {city}.", "im Jahr {year} schrieb {name} ein Buch über {city}."),
    ("the school in {city} opened in {month} {year}.", "die Schule in {city} öffnete im {month} {year}."),
    ("it was {year} when {name} came to {city}.", "es war {year}, als {name} nach {city} kam."),
    ("{thing} costs {money}.", "{thing} kostet {money}."),
    ("{thing} from {city} costs {money}.", "{thing} aus {city} kostet {money}."),
    ("{name} paid {money} on {day}.", "{name} bezahlte am {day} {money}."),
    ("{name} owes us {money} since {month}.", "{name} schuldet uns seit {month} {money}."),
    ("a ticket to {city} costs {money}.", "eine Fahrkarte nach {city} kostet {money}."),
)


def _pairs(english: str, german: str) -> tuple[Pair, ...]:
    return tuple(zip(english.split(", "), german.split(", "), strict=True))


WORDS: dict[str, tuple[Pair, ...]] = {
    "name": _pairs(
        "Anna, Ben, Clara, David, Emma, Jonas, Lena, Paul, Sofia",
        "Anna, Ben, Clara, David, Emma, Jonas, Lena, Paul, Sofia",
    ),
    "city": _pairs(
        "Berlin, Cologne, Geneva, Hamburg, Munich, Nuremberg, Vienna, Zurich",
        "Berlin, Köln, Genf, Hamburg, München, Nürnberg, Wien, Zürich",
    ),
    "day": _pairs(
        "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
        "Montag, Dienstag, Mittwoch, Donnerstag, Freitag, Samstag, Sonntag",
    ),
    "month": _pairs(
        "January, March, May, June, July, August, October, December",
        "Januar, März, Mai, Juni, Juli, August, Oktober, Dezember",
    ),
    "plural": _pairs(
        "apples, bicycles, birds, books, chairs, dogs, houses, keys, letters, trees",
        "Äpfel, Fahrräder, Vögel, Bücher, Stühle, Hunde, Häuser, Schlüssel, Briefe, Bäume",
    ),
    "building": _pairs(
        "the bridge, the church, the station, the theatre, the tower",
        "die Brücke, die Kirche, der Bahnhof, das Theater, der Turm",
    ),
    "thing": _pairs(
        "the bag, the bread, the coat, the lamp, the picture, the table",
        "die Tasche, das Brot, der Mantel, die Lampe, das Bild, der Tisch",
    ),
}


def num2words(number: int | Decimal, **options: str) -> str:
    """The number in words, by the package num2words, which only this corpus needs."""
    with extra("numbers", what="a corpus of numbers"):
        from num2words import num2words as in_words
    return in_words(number, **options)


def cardinal(draw: random.Random) -> Pair:
    """From 2 to 9,999, with as many short numbers as long ones. None ends in 01, because German inflects it."""
    number = draw.randrange(2, 10 ** draw.randrange(1, 5))
    if number % 100 == 1:
        number += 1
    return num2words(number, lang="en"), num2words(number, lang="de")


def _ordinal(draw: random.Random, last: int) -> Pair:
    number = draw.randrange(1, last + 1)
    return num2words(number, to="ordinal", lang="en"), num2words(number, to="ordinal", lang="de")


def ordinal(draw: random.Random) -> Pair:
    """An ordinal from first to ninety-ninth."""
    return _ordinal(draw, 99)


def ordinal_day(draw: random.Random) -> Pair:
    """A day of the month from first to thirtieth."""
    return _ordinal(draw, 30)


def year(draw: random.Random) -> Pair:
    """A year from 1101 to 2099."""
    number = draw.randrange(1101, 2100)
    return num2words(number, to="year", lang="en"), num2words(number, to="year", lang="de")


def money(draw: random.Random) -> Pair:
    """An amount of at most 999 euros or dollars, and cents."""
    amount = Decimal(draw.randrange(200, 100_000)) / 100
    currency = draw.choice(("EUR", "USD"))
    return (
        num2words(amount, to="currency", lang="en", currency=currency),
        num2words(amount, to="currency", lang="de", currency=currency),
    )


NUMBERS: dict[str, Callable[[random.Random], Pair]] = {
    "cardinal": cardinal,
    "ordinal": ordinal,
    "ordinal_day": ordinal_day,
    "year": year,
    "money": money,
}


def _sentence(draw: random.Random) -> Pair:
    """A sentence in English and German."""
    english, german = draw.choice(TEMPLATES)
    filled = {slot: draw.choice(words) for slot, words in WORDS.items() if f"{{{slot}}}" in english}
    filled |= {slot: number(draw) for slot, number in NUMBERS.items() if f"{{{slot}}}" in english}
    pair = (
        english.format_map({slot: words[0] for slot, words in filled.items()}),
        german.format_map({slot: words[1] for slot, words in filled.items()}),
    )
    return pair[0][0].upper() + pair[0][1:], pair[1][0].upper() + pair[1][1:]


def _distinct(draw: random.Random) -> Iterator[Pair]:
    """Different sentences, until new ones become rare."""
    seen = _Seen()
    repeated = 0
    while repeated < 1_000:
        pair = _sentence(draw)
        if not seen.add(pair[0]):
            repeated += 1
            continue
        repeated = 0
        yield pair


class _Seen:
    """A set of sentences, as digests of 64 bits: 8 bytes each, and 16 more while new ones are sorted in.

    The probability that two of five million sentences share a digest is about one in a million.
    """

    def __init__(self) -> None:
        self._sorted, self._new = np.empty(0, np.uint64), set[np.uint64]()

    def add(self, sentence: str) -> bool:
        """Adds a sentence and returns whether it is new."""
        digest = np.uint64(int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=8).digest(), "little"))
        place = np.searchsorted(self._sorted, digest)
        if digest in self._new or (place < len(self._sorted) and self._sorted[place] == digest):
            return False
        self._new.add(digest)
        if len(self._new) == _NEW:
            self._sorted = np.sort(np.concatenate([self._sorted, np.fromiter(self._new, np.uint64, _NEW)]))
            self._new.clear()
        return True


def generate_numbers(*, pairs: int, seed: int, german_first: bool = False) -> Iterator[tuple[str, Pair]]:
    """Yields pairs of English and German sentences with their split. No sentence occurs twice, so no split leaks.

    :param pairs: number of training pairs. valid and test have 1,000 each.
    :param seed: random seed.
    :param german_first: whether German comes first in each pair.
    :raises SettingError: `pairs` is larger than the number of possible sentences.
    """
    wanted = {"test": TEST_PAIRS, "valid": VALID_PAIRS, "train": pairs}
    sentences = _distinct(random.Random(seed))
    for split, count in wanted.items():
        found = 0
        for english, german in islice(sentences, count):
            found += 1
            yield split, ((german, english) if german_first else (english, german))
        if found < count:
            raise SettingError.of_value("pairs", pairs, f"at most about {found:,}, the number of possible sentences")


def numbers(source: str, target: str) -> GeneratedCorpus:
    """The corpus of spelled-out numbers, from English to German or from German to English."""

    def generate(*, pairs: int, seed: int) -> Iterator[tuple[str, Pair]]:
        return generate_numbers(pairs=pairs, seed=seed, german_first=source == "de")

    return GeneratedCorpus(
        name=f"numbers-{source}-{target}",
        source=source,
        target=target,
        homepage="generated on this machine, without a download",
        licence="none needed: this package generates it",
        citation="none",
        defaults=PrepareDefaults(size=500),
        generate=generate,
        pairs=30_000,
        seed=1,
        packages=("num2words",),
    )
