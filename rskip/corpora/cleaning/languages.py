"""Detects pairs in a wrong language with py3langid (extra `langid`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from rskip.corpora.cleaning.sentence import unescape_entities
from rskip.corpora.corpus import Pair
from rskip.extras import extra

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SHORTEST_CHARACTERS = 20
SURE = 0.7
MOST = 0.8


def mismatch(words: Pair, languages: tuple[str, str]) -> bool:
    """Whether a side of the tokenised pair is very probably in a wrong language.

    It is if it has at least SHORTEST_CHARACTERS and py3langid gives another language a probability of at least SURE.
    Shorter sentences (names, numbers, headlines) are misjudged too often. We chose both limits by measuring on correct
    sentences of Multi30k, IWSLT'15 and newstest2013. The result is deterministic on one machine. Each process loads the
    model (about 100 MB) at the first use.
    """
    return any(_is_other(side, language) for side, language in zip(words, languages, strict=True))


def likely_language(sentences: Iterable[str]) -> str | None:
    """The language of clearly most of the sentences. None if there is no such language or py3langid is missing.

    Sentences shorter than SHORTEST_CHARACTERS do not count. At least ten others are needed.
    """
    try:
        identifier = _identifier()
    except ValueError:
        return None
    found = [identifier.classify(sentence) for sentence in sentences if len(sentence) >= SHORTEST_CHARACTERS]
    counts = Counter(language for language, probability in found if probability >= SURE)
    language, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return language if len(found) >= 10 and count >= MOST * len(found) else None


def knows_language(language: str) -> bool:
    """Whether py3langid knows the language. :raises ValueError: py3langid is not installed."""
    return language in _identifier().labels


def rank_languages(text: str) -> list[tuple[str, float]]:
    """All languages that py3langid knows, with their probabilities, the most probable first."""
    return [(str(language), float(probability)) for language, probability in _identifier().rank(text)]


def _is_other(words: str, language: str) -> bool:
    # roughly detokenised, since a separate apostrophe makes French look like Walloon
    sentence = unescape_entities(words.replace(" @-@ ", "-")).replace(" '", "'").replace("' ", "'")
    if len(sentence) < SHORTEST_CHARACTERS:
        return False
    found, probability = _identifier().classify(sentence)
    return found != language and probability >= SURE


@cache
def _identifier() -> LanguageIdentifier:
    with extra("langid", what="the language filter"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
