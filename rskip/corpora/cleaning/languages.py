"""Whether the sides of a pair are in their languages, as py3langid judges (extra `langid`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from rskip.corpora.cleaning.sentence import unescape_entities
from rskip.corpora.corpus import Pair
from rskip.machine.extras import extra

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

SHORTEST_CHARACTERS = 20
SURE = 0.7
MOST = 0.8


class LanguageFilter:
    """Finds pairs of which a side is surely in another language than it should be.

    A side is that if it has at least SHORTEST_CHARACTERS and py3langid gives some other language a probability of
    SURE or more. Shorter ones (names, figures, headlines) are too often misjudged. Both limits were chosen by
    measurement on true sentences of Multi30k, IWSLT'15 and newstest2013. On one machine the answer is always the same.
    Pickles; each process loads the model, some 100 MB, when it first needs it.

    :param languages: two-letter codes of source and target.
    :raises ValueError: py3langid is not installed, or does not know a language.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        known = _identifier().labels
        for language in languages:
            if language not in known:
                raise ValueError(f"py3langid does not know the language {language!r}: leave out the language filter")
        self._languages = languages

    def mismatch(self, words: Pair) -> bool:
        """Whether a side of the tokenised pair is surely in another language."""
        return any(_is_other(side, language) for side, language in zip(words, self._languages, strict=True))


def likely_language(sentences: Iterable[str]) -> str | None:
    """The language that surely most of the sentences are in; None where there is none, or py3langid is missing.

    Sentences shorter than SHORTEST_CHARACTERS are left out, and ten others are the least that say anything.
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
    """Whether py3langid, which must be installed, knows the language."""
    return language in _identifier().labels


def _is_other(words: str, language: str) -> bool:
    # roughly as it was written: an apostrophe by itself makes French look like Walloon
    sentence = unescape_entities(words.replace(" @-@ ", "-")).replace(" '", "'").replace("' ", "'")
    if len(sentence) < SHORTEST_CHARACTERS:
        return False
    found, probability = _identifier().classify(sentence)
    return found != language and probability >= SURE


@cache
def _identifier() -> LanguageIdentifier:
    with extra("langid", what="the language filter"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        if not hasattr(LanguageIdentifier, "from_model_file"):
            raise ImportError("it is older than 0.4", name="py3langid")
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
