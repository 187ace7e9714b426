"""The compiled beam search. B sentences, K beams, V vocabulary, S source length.

It takes addresses and numbers, and gives arrays of ctypes, which PyTorch and NumPy read without a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from rskip.cpu.library import Library
from rskip.cpu.structures import (
    FINISHED,
    NO_MEMORY,
    NOT_NUMBERS,
    Decoding,
    FoundHypothesis,
    SearchSettings,
    SearchView,
)

_MANY = 2**62  # steps


class FoundTokens(NamedTuple):
    """A finished hypothesis of T tokens: its score, tokens (T), and their scores (T) and attention (T, S) if kept."""

    score: float
    tokens: Any
    token_scores: Any
    attention: Any


class Search:
    """The state of one beam search, whose rules are those of `rskip.generation.search`. `close` frees its memory.

    A step takes the logits of all beams (`step`) or computes them with the kernels (`run`). Both return whether the
    search is finished. After a step of the first kind, `beams` tells how the beams go on.

    :param limits: (B) maximum number of tokens of each sentence, without its end.
    :param prefixes: (B, P) forced first tokens, padded at the end; None: no forced tokens.
    :param settings: other fields of `SearchSettings`; `source` is S if attention is kept, 0 otherwise.
    :raises ValueError: a token that the settings use is not in the vocabulary.
    :raises MemoryError: not enough memory.
    """

    def __init__(
        self, library: Library, *, limits: Sequence[int], prefixes: Sequence[Sequence[int]] | None, words: int,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.library = library
        length = len(prefixes[0]) if prefixes else 0
        forced = [token for prefix in prefixes or () for token in prefix]
        assert limits and words > 1 and settings["beams"] > 0, "nothing to search for"
        assert len(prefixes or limits) == len(limits) and all(len(each) == length for each in prefixes or ())
        used = ["start", "end", "padding", *(["unknown"] if settings["unknown_penalty"] else [])]
        for token in {settings[name] for name in used}.union(forced):
            if not 0 <= token < words:
                raise ValueError(f"token {token} is not in the vocabulary: expected 0 to {words - 1}")
        self._settings = SearchSettings(
            limits=_integers(limits), prefixes=_integers(forced), sentences=len(limits), prefix=length, words=words,
            **settings,
        )  # fmt: skip
        self._search = library.search_new(self._settings)
        if self._search is None:
            raise MemoryError(f"a search for {len(limits)} sentences does not fit into memory")

    def close(self) -> None:
        """Frees the memory. In `__del__` a Ctrl-C would be printed and forgotten."""
        self.library.search_free(self._search)

    def step(self, logits: int, kind: int, attention: int | None, *, threads: int) -> bool:
        """A step from the addresses of logits (B', K', V), which it changes, and attention (B', K', S).

        :param kind: type of the logits, from `TYPES`.
        :raises ValueError: the logits are not numbers.
        """
        return self._finished(self.library.search_step(self._search, logits, kind, attention, threads))

    def run(self, decoding: Decoding, *, steps: int = _MANY, threads: int) -> bool:
        """Up to `steps` steps. It returns earlier after 0.2 seconds, or if tokens exceed the known positions.

        :raises ValueError: the logits are not numbers.
        """
        return self._finished(self.library.search_run(self._search, decoding, steps, threads))

    @property
    def length(self) -> int:
        """The number of tokens of every unfinished hypothesis."""
        return self._view().length

    def beams(self) -> tuple[list[list[int]], list[list[int]], list[int] | None]:
        """The last token (B', K') of each beam, its parent (B', K'), and the rows (B') that stayed; None: all."""
        view = self._view()
        count, width = view.count, view.width
        tokens, parents = (
            [list(each) for each in (ctypes.c_int64 * width * count).from_address(address)]
            for address in (view.tokens, view.parents)
        )
        return tokens, parents, list((ctypes.c_int64 * count).from_address(view.rows)) if view.rows else None

    def _view(self) -> SearchView:
        view = SearchView()
        self.library.search_view(self._search, view)
        return view

    def hypotheses(self, sentence: int, count: int, *, token_scores: bool = False) -> list[FoundTokens]:
        """The `count` best hypotheses of a sentence, best first, after the search is finished."""
        found = min(count, self.library.search_found(self._search, sentence))
        return [self._hypothesis(sentence, number, token_scores) for number in range(found)]

    def _hypothesis(self, sentence: int, number: int, token_scores: bool) -> FoundTokens:
        asked = FoundHypothesis()
        self.library.search_hypothesis(self._search, sentence, number, asked)
        length, source = asked.length, self._settings.source
        tokens = (ctypes.c_int64 * length)()
        scores = (ctypes.c_float * length)() if token_scores else None
        attention = (ctypes.c_float * (length * source))() if source else None
        for name, array in (("tokens", tokens), ("token_scores", scores), ("attention", attention)):
            if array is not None:
                asked.point(name, array)
        self.library.search_hypothesis(self._search, sentence, number, asked)
        return FoundTokens(asked.score, tokens, scores, attention)

    def _finished(self, status: int) -> bool:
        if status == NO_MEMORY:
            raise MemoryError("the search does not fit into memory")
        if status == NOT_NUMBERS:
            raise ValueError(NOT_A_NUMBER)
        return status == FINISHED


NOT_A_NUMBER = (
    "the model's output is not a number: its training diverged, or its values are out of the range of this precision; "
    "try float32"
)


def _integers(values: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int64 * len(values))(*values)
