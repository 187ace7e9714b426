"""The sentences of valid and test, which a model must not have seen in training."""

from __future__ import annotations

from collections.abc import Iterable

from rskip.corpora.corpus import Pair


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
