"""The compiled beam search. B sentences, K beams, T target length, S source length, V vocabulary.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rskip.cpu.decoding import CpuDecoding
from rskip.cpu.library import Library
from rskip.cpu.structures import FoundHypothesis, SearchSettings, SearchView, constants
from rskip.cpu.threads import threads
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions, SpecialTokens

NOT_A_NUMBER = (
    "the model's output is not a number: its training diverged, or its values are out of the range of this precision; "
    "try float32"
)
_STEPS_TO_KNOW = 64  # number of further tokens for which the table of positions is enlarged at once
_MANY = 2**62  # steps

EachStep = Callable[[int], None] | None


class CompiledSearch:
    """The state of one beam search over a batch, whose rules are those of `rskip.generation.beam_search`.

    The caller gives each step's logits (`step`), or the kernels compute them (`run`). A `with` block frees the memory
    at the end. (In `__del__` a Ctrl-C would be printed and forgotten.)

    :param limits: (B) maximum number of tokens of each sentence, without its end.
    :param prefixes: (B, P) forced first tokens of each sentence, padded at the end.
    :param words: V.
    :param source: S; with `options.attention` the search keeps attention.
    :raises ValueError: a token that the search uses is not in the vocabulary.
    :raises MemoryError: not enough memory.
    """

    def __init__(
        self,
        library: Library,
        options: SearchOptions,
        *,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        special: SpecialTokens,
        words: int,
        source: int,
    ) -> None:
        self.library, self.options, self.limits = library, options, limits
        forced = [token for prefix in prefixes or () for token in prefix]
        start = special.end if special.start is None else special.start
        unknown = [special.unknown] if options.unknown_penalty else []
        for token in {start, special.end, special.padding, *unknown, *forced}:
            if not 0 <= token < words:
                raise ValueError(f"token {token} is not in the vocabulary: expected 0 to {words - 1}")
        self._source = source if options.attention else 0
        settings = SearchSettings(
            limits=_integers(limits), prefixes=_integers(forced), prefix=len(prefixes[0]) if prefixes else 0,
            sentences=len(limits), words=words, beams=options.beam, start=start, end=special.end,
            padding=special.padding, unknown=special.unknown, min_length=options.min_length,
            ngram=options.no_repeat_ngram, gnmt=options.length_penalty_kind == "gnmt", source=self._source,
            length_penalty=options.length_penalty, unknown_penalty=options.unknown_penalty,
            temperature=options.temperature, sampling=options.sampling, top_k=options.top_k, top_p=options.top_p,
            seed=options.seed,
        )  # fmt: skip
        self._search = library.search_new(settings)
        if self._search is None:
            raise MemoryError(f"a search for {len(limits)} sentences does not fit into memory")

    def __enter__(self) -> CompiledSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self.library.search_free(self._search)

    def run(self, decoding: CpuDecoding, each_step: EachStep) -> None:
        """Searches over a decoder whose step is one program.

        :raises ValueError: the logits are not numbers.
        """
        length, most, finished = 0, max(self.limits) + 1, False
        while not finished:
            if each_step is not None:
                each_step(length + 1)
            decoding.know(min(length + _STEPS_TO_KNOW, most))
            # it returns after 0.2 seconds, or if tokens exceed the known positions
            finished = self._finished(self.library.search_run(self._search, decoding, _MANY, threads()))
            length = self._view().length

    def step(self, logits: int, kind: int, attention: int | None, *, threads: int) -> bool:
        """A step from the addresses of logits (B', K', V), which it changes, and attention (B', K', S).

        :param kind: type of the logits, from `TYPES`.
        :returns: whether the search is finished. Otherwise `beams` tells how the beams continue.
        :raises ValueError: the logits are not numbers.
        """
        return self._finished(self.library.search_step(self._search, logits, kind, attention, threads))

    def beams(self) -> tuple[list[list[int]], list[list[int]], list[int] | None]:
        """The last token (B', K') of each beam, its parent (B', K'), and the rows (B') that stayed; None: all."""
        view = self._view()
        count, width = view.count, view.width
        tokens, parents = (
            [list(each) for each in (ctypes.c_int64 * width * count).from_address(address)]
            for address in (view.tokens, view.parents)
        )
        return tokens, parents, list((ctypes.c_int64 * count).from_address(view.rows)) if view.rows else None

    def hypotheses(self, as_array: Callable[[np.ndarray], Any] = np.asarray) -> list[list[Hypothesis]]:
        """The `options.nbest` best of each sentence, after the search is finished.

        :param as_array: converts their arrays.
        """
        found, count = self.library.search_found, self.options.nbest
        return [
            [self._hypothesis(row, number, as_array) for number in range(min(count, found(self._search, row)))]
            for row in range(len(self.limits))
        ]

    def _hypothesis(self, row: int, number: int, as_array: Callable[[np.ndarray], Any]) -> Hypothesis:
        asked = FoundHypothesis()
        self.library.search_hypothesis(self._search, row, number, asked)
        length = asked.length
        arrays = {"tokens": np.empty(length, np.int64)}
        if self.options.token_scores:
            arrays["token_scores"] = np.empty(length, np.float32)
        if self._source:
            arrays["attention"] = np.empty((length, self._source), np.float32)
        for name, array in arrays.items():
            asked.point(name, array)
        self.library.search_hypothesis(self._search, row, number, asked)
        return Hypothesis(score=asked.score, **{name: as_array(array) for name, array in arrays.items()})

    def _view(self) -> SearchView:
        view = SearchView()
        self.library.search_view(self._search, view)
        return view

    def _finished(self, status: int) -> bool:
        if status == constants.NO_MEMORY:
            raise MemoryError("the search does not fit into memory")
        if status == constants.NOT_NUMBERS:
            raise ValueError(NOT_A_NUMBER)
        return status == constants.FINISHED


def _integers(values: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int64 * len(values))(*values)
