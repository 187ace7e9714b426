"""Generates a corpus from a seed: sentences with spelled-out integers, ordinals, years and amounts of money.

Each sentence has exactly one translation, so exact matches can be counted. Numbers must be composed: twenty-one is
einundzwanzig.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice

from rskip.corpora.corpus import Corpus, Pair, PrepareDefaults
from rskip.extras import extra
from rskip.settings.errors import SettingError

VALID_PAIRS = TEST_PAIRS = 1_000

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


def _in_both(number: int | Decimal, **options: str) -> Pair:
    return num2words(number, lang="en", **options), num2words(number, lang="de", **options)


def cardinal(draw: random.Random) -> Pair:
    """From 2 to 9,999, with as many short numbers as long ones. None ends in 01, because German inflects it."""
    number = draw.randrange(2, 10 ** draw.randrange(1, 5))
    return _in_both(number + 1 if number % 100 == 1 else number)


def money(draw: random.Random) -> Pair:
    """An amount of at most 999 euros or dollars, and cents."""
    amount = Decimal(draw.randrange(200, 100_000)) / 100
    return _in_both(amount, to="currency", currency=draw.choice(("EUR", "USD")))


NUMBERS: dict[str, Callable[[random.Random], Pair]] = {
    "cardinal": cardinal,
    "ordinal": lambda draw: _in_both(draw.randrange(1, 100), to="ordinal"),
    "ordinal_day": lambda draw: _in_both(draw.randrange(1, 31), to="ordinal"),  # of a month
    "year": lambda draw: _in_both(draw.randrange(1101, 2100), to="year"),
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
    """Different sentences, until new ones become rare.

    They are compared by digests of 64 bits, which take about 80 bytes each. The probability that two of five million
    sentences share a digest is about one in a million.
    """
    seen, repeated = set[bytes](), 0
    while repeated < 1_000:
        pair = _sentence(draw)
        digest = hashlib.blake2b(pair[0].encode(), digest_size=8).digest()
        if digest in seen:
            repeated += 1
            continue
        seen.add(digest)
        repeated = 0
        yield pair


@dataclass(frozen=True, kw_only=True)
class NumbersCorpus(Corpus):
    """The corpus of spelled-out numbers, between English and German."""

    homepage: str = "generated on this machine, without a download"
    licence: str = "none needed: this package generates it"
    citation: str = "none"
    defaults: PrepareDefaults = PrepareDefaults(size=500)

    @property
    def choices(self) -> dict[str, int]:
        return {"pairs": 30_000, "seed": 1}

    def generate(self, *, pairs: int, seed: int) -> Iterator[tuple[str, Pair]]:
        """Yields sentence pairs with their split. No sentence occurs twice, so no split leaks.

        :param pairs: number of training pairs. valid and test have 1,000 each.
        :param seed: random seed.
        :raises SettingError: `pairs` is larger than the number of possible sentences.
        """
        wanted = {"test": TEST_PAIRS, "valid": VALID_PAIRS, "train": pairs}
        sentences = _distinct(random.Random(seed))
        for split, count in wanted.items():
            found = 0
            for english, german in islice(sentences, count):
                found += 1
                yield split, ((german, english) if self.source == "de" else (english, german))
            if found < count:
                expected = f"at most about {found:,}, the number of possible sentences"
                raise SettingError.of_value("pairs", pairs, expected)


NUMBERS_CORPORA = (
    NumbersCorpus(name="numbers-en-de", source="en", target="de"),
    NumbersCorpus(name="numbers-de-en", source="de", target="en"),
)
