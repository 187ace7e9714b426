"""How much of a dictionary a text uses, and how few types make up most of the text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rskip.corpora.inspection.mmap_sentences import Integers
from rskip.text.dictionary import Dictionary

COVERAGES = (50, 90, 99, 100)
SPECIAL = 4
PADDING = "madeupword"


@dataclass(frozen=True, kw_only=True)
class VocabularyFigures:
    """A dictionary, and the use that the training text makes of it.

    size: all its tokens, as many as the embedding has rows.
    padding: tokens that only fill it up to a round size. With the 4 special ones they can't occur in a text.
    used, used_rate: the others that occur in train, and their share. None, like the rest, where there is no train.
    once: those that occur a single time.
    coverage: how many types, the most frequent first, make up so many per cent of the known tokens.
    """

    size: int
    padding: int
    used: int | None = None
    used_rate: float | None = None
    once: int | None = None
    coverage: dict[str, int] | None = None


def vocabulary_figures(dictionary: Dictionary, counts: Integers | None) -> VocabularyFigures:
    """Figures of a dictionary.

    :param counts: how often each of its indices occurs in train; None: there is no train.
    """
    padding = sum(_is_padding(token) for token in dictionary.tokens[SPECIAL:])
    if counts is None:
        return VocabularyFigures(size=len(dictionary), padding=padding)
    words = len(dictionary) - SPECIAL - padding
    frequencies = descending_frequencies(counts)
    return VocabularyFigures(
        size=len(dictionary),
        padding=padding,
        used=len(frequencies),
        used_rate=len(frequencies) / words if words else None,
        once=int((frequencies == 1).sum()),
        coverage={str(percent): types_that_cover(frequencies, percent) for percent in COVERAGES},
    )


def descending_frequencies(counts: Integers) -> Integers:
    """How often each type occurs that does, special ones aside, the most frequent first."""
    words = counts[SPECIAL:]
    return np.sort(words[words > 0])[::-1]


def types_that_cover(frequencies: Integers, percent: int) -> int:
    """How many of these types, the most frequent first, make up `percent` % of their occurrences; 0 of none."""
    total = int(frequencies.sum())
    needed = -(-percent * total // 100)
    return int(np.searchsorted(np.cumsum(frequencies), needed)) + 1 if total else 0


def _is_padding(token: str) -> bool:
    return token.startswith(PADDING) and token[len(PADDING) :].isdigit()
