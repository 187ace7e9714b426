"""Which tokenised pairs are dropped, one pair at a time, and why."""

from __future__ import annotations

from collections.abc import Iterable

from rskip.corpora.cleaning.languages import LanguageFilter
from rskip.corpora.corpus import CleaningOptions, Pair
from rskip.files.text_lines import is_blank

EMPTY = "empty"
TOO_LONG = "too long"
LOPSIDED = "lopsided"
LEAK = "leak"
WRONG_LANGUAGE = "wrong language"
DUPLICATE = "duplicate"

REASONS = (EMPTY, TOO_LONG, LOPSIDED, LEAK, WRONG_LANGUAGE, DUPLICATE)
"""In the order in which they are looked for: a pair is dropped for the first that applies, and counted there alone."""


def looked_for(options: CleaningOptions) -> tuple[str, ...]:
    """Those of REASONS for which these options drop pairs."""
    switches = {
        EMPTY: options.empty,
        TOO_LONG: options.max_words is not None or options.max_characters is not None,
        LOPSIDED: options.max_ratio is not None,
        LEAK: options.leaks,
        WRONG_LANGUAGE: options.languages,
        DUPLICATE: options.duplicates,
    }
    return tuple(reason for reason in REASONS if switches[reason])


class HeldOut:
    """Pairs of valid and test, for the question whether a training pair is among them.

    Sentences are compared as strings, so both texts must have been cleaned, normalised and tokenised alike. It keeps
    the sentences themselves: the few thousand of a valid and a test set are small, and their digests would not be
    much smaller. Pickles.

    :param pairs: tokenised pairs, source first.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = frozenset(pairs)
        self._sources = frozenset(source for source, _ in self._pairs if source)
        self._targets = frozenset(target for _, target in self._pairs if target)

    def __len__(self) -> int:
        """How many different pairs."""
        return len(self._pairs)

    def __contains__(self, words: Pair) -> bool:
        """Whether this very pair, both its sides, is held out."""
        return words in self._pairs

    def sides(self, words: Pair) -> tuple[bool, bool]:
        """Whether the source, and whether the target, is a held-out sentence of its side; an empty one never is."""
        source, target = words
        return source in self._sources, target in self._targets


class PairCleaner:
    """Says why a pair is dropped. It changes nothing and remembers nothing, and it pickles.

    Length and ratio are those of Moses' clean-corpus-n.perl: words between single spaces; dropped is what has more
    than `max_words` on a side, or more than `max_ratio` times the words of its other side; what has just as many
    stays. Otherwise than there: nothing is dropped that the options don't ask for (Moses always drops empty sides, its
    ratio is 9 unless told), no minimum but `empty`, no limit on the length of a word (Moses: 1,000 characters), and
    the words are left as they are (Moses deletes "|").

    :param languages: two-letter codes of source and target.
    :param held_out: the pairs of valid and test; needed if options.leaks.
    :raises ValueError: with options.languages, a language that can't be told, or a missing package.
    """

    def __init__(
        self, options: CleaningOptions, *, languages: tuple[str, str], held_out: HeldOut | None = None
    ) -> None:
        assert held_out is not None or not options.leaks
        self._options = options
        self._held_out = held_out if options.leaks else None
        self._language_filter = LanguageFilter(languages) if options.languages else None

    def reason(self, words: Pair) -> str | None:
        """Why the pair is dropped: the first of REASONS that applies, None where the pair stays.

        Duplicates need the other pairs: `find_duplicates`.

        :param words: both sides as words joined by single spaces; "" has none.
        """
        options = self._options
        shorter, longer = sorted((_length(words[0]), _length(words[1])))
        if options.empty and any(map(is_blank, words)):
            return EMPTY
        if options.max_words is not None and longer > options.max_words:
            return TOO_LONG
        if options.max_characters is not None and max(map(len, words)) > options.max_characters:
            return TOO_LONG
        if options.max_ratio is not None and longer > options.max_ratio * shorter:
            return LOPSIDED
        if self._held_out is not None and words in self._held_out:
            return LEAK
        if self._language_filter is not None and self._language_filter.mismatch(words):
            return WRONG_LANGUAGE
        return None

    def held_out_sides(self, words: Pair) -> tuple[bool, bool]:
        """Whether the source, and whether the target, is a sentence of valid or test; (False, False) without leaks."""
        return (False, False) if self._held_out is None else self._held_out.sides(words)


def _length(words: str) -> int:
    return words.count(" ") + 1 if words else 0
