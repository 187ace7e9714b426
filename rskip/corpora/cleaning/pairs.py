"""Decides for each tokenised pair whether it is dropped, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from rskip.corpora.cleaning.languages import knows_language, mismatch
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.extras import extra
from rskip.files.text_lines import is_blank

with extra("translation", what="a corpus of text"):
    import numpy as np
    from numpy.typing import NDArray

EMPTY = "empty"
TOO_LONG = "too long"
LOPSIDED = "lopsided"
LEAK = "leak"
WRONG_LANGUAGE = "wrong language"
DUPLICATE = "duplicate"

REASONS = (EMPTY, TOO_LONG, LOPSIDED, LEAK, WRONG_LANGUAGE, DUPLICATE)
"""In the order of the checks: a pair is dropped for the first reason that applies, and counts only there."""


def checked_reasons(options: CleaningOptions) -> tuple[str, ...]:
    """The reasons for which these options drop pairs."""
    switches = {
        EMPTY: options.empty,
        TOO_LONG: options.max_words or options.max_characters,
        LOPSIDED: options.max_ratio,
        LEAK: options.leaks,
        WRONG_LANGUAGE: options.languages,
        DUPLICATE: options.duplicates,
    }
    return tuple(reason for reason in REASONS if switches[reason])


class PairCleaner:
    """Finds the reason for which a pair is dropped. It is stateless and can be pickled.

    As in Moses' clean-corpus-n.perl, words are separated by single spaces. A pair is dropped if a side has more than
    `max_words` words, or more than `max_ratio` times the words of the other side. Differences from Moses:

    - Nothing is dropped without an option (Moses always drops empty sides, and its default ratio is 9).
    - The only minimum length is `empty`, and the length of a word is not limited (Moses: 1,000 characters).
    - Words are not changed (Moses deletes "|").

    :param languages: two-letter codes of source and target.
    :param held_out: the pairs of valid and test, which options.leaks needs: cleaned, normalised and tokenised like the
        others, since sentences are compared as strings.
    :raises ValueError: options.languages is set, and a language is unknown or the package is missing.
    """

    def __init__(
        self, options: CleaningOptions, *, languages: tuple[str, str], held_out: Collection[Pair] = frozenset()
    ) -> None:
        self._options = options
        self._held_out = frozenset(held_out if options.leaks else ())
        self._sources = frozenset(source for source, _ in self._held_out if source)
        self._targets = frozenset(target for _, target in self._held_out if target)
        self._languages = languages
        for language in languages if options.languages else ():
            if not knows_language(language):
                raise ValueError(f"py3langid does not know the language {language!r}: leave out the language filter")

    def reason(self, words: Pair) -> str | None:
        """The first of REASONS that applies to the pair; None if it stays. `find_duplicates` finds duplicates.

        :param words: both sides, as words joined by single spaces.
        """
        options = self._options
        shorter, longer = sorted((_length(words[0]), _length(words[1])))
        if options.empty and any(map(is_blank, words)):
            return EMPTY
        if options.max_words and longer > options.max_words:
            return TOO_LONG
        if options.max_characters and max(map(len, words)) > options.max_characters:
            return TOO_LONG
        if options.max_ratio and longer > options.max_ratio * shorter:
            return LOPSIDED
        if words in self._held_out:
            return LEAK
        if options.languages and mismatch(words, self._languages):
            return WRONG_LANGUAGE
        return None

    def held_out_sides(self, words: Pair) -> tuple[bool, bool]:
        """Whether the source and the target are sentences of valid or test; (False, False) without options.leaks."""
        return words[0] in self._sources, words[1] in self._targets


def _length(words: str) -> int:
    return words.count(" ") + 1 if words else 0


def pair_digest(words: Pair) -> bytes:
    """The pair's digest of 8 bytes (BLAKE2b). Among 36 million pairs, the probability that two share one is 0.00004.

    :param words: both sides, without line feeds.
    """
    return hashlib.blake2b("\n".join(words).encode(), digest_size=8).digest()


def find_duplicates(digests: bytes | bytearray) -> NDArray[np.int64]:
    """The rows of every pair that equals an earlier one, ascending, from 0.

    It sorts the digests in memory, which takes 24 bytes per pair.

    :param digests: the `pair_digest` of each pair.
    """
    found = np.frombuffer(digests, dtype="<u8")
    order = np.argsort(found, kind="stable")  # equal digests stay in the order of their pairs
    found = found[order]
    return np.sort(order[1:][found[1:] == found[:-1]])
