"""Beam search by the compiled search. B sentences, K beams, T target length, S source length, V vocabulary.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rskip.cpu.decoding import CpuDecoding
from rskip.cpu.library import Library
from rskip.cpu.search import Search
from rskip.cpu.threads import threads
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions
from rskip.generation.special_tokens import SpecialTokens

_STEPS_TO_KNOW = 64  # number of further tokens for which the table of positions is enlarged at once

EachStep = Callable[[int], None] | None


class CompiledSearch:
    """One beam search over a batch, which follows `options`. A `with` block frees its memory at the end.

    :param limits: maximum number of tokens of each sentence, without its end.
    :param prefixes: forced first tokens of each sentence, padded at the end.
    """

    def __init__(
        self,
        library: Library,
        options: SearchOptions,
        *,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        special: SpecialTokens,
    ) -> None:
        self.library, self.options, self.limits, self.prefixes = library, options, limits, prefixes
        self.special, self.start = special, special.end if special.start is None else special.start
        self.search: Search
        self.words, self.source = 0, 0  # V, and S if attention is kept

    def __enter__(self) -> CompiledSearch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.words:
            self.search.close()

    def run(self, decoding: CpuDecoding, each_step: EachStep) -> None:
        """Searches over a decoder whose step is one program."""
        self.open(decoding.words, decoding.arguments.source)
        length, most = 0, max(self.limits) + 1
        finished = False
        while not finished:
            if each_step is not None:
                each_step(length + 1)
            decoding.know(min(length + _STEPS_TO_KNOW, most))
            if each_step is None:
                finished = self.search.run(decoding.arguments, threads=threads())
                length = self.search.length
            else:
                finished = self.search.run(decoding.arguments, steps=1, threads=threads())
                length += 1

    def open(self, words: int, source: int) -> None:
        """Begins the search over this vocabulary. `source`: S, of which attention is kept if `options` asks for it."""
        options, special = self.options, self.special
        self.source = source if options.attention else 0
        self.search = Search(
            self.library, limits=self.limits, prefixes=self.prefixes, words=words, beams=options.beam,
            start=self.start, end=special.end, padding=special.padding, unknown=special.unknown,
            min_length=options.min_length, ngram=options.no_repeat_ngram, gnmt=options.length_penalty_kind == "gnmt",
            source=self.source, length_penalty=options.length_penalty,
            unknown_penalty=options.unknown_penalty, temperature=options.temperature, sampling=options.sampling,
            top_k=options.top_k, top_p=options.top_p, seed=options.seed,
        )  # fmt: skip
        self.words = words

    def hypotheses(self, as_array: Callable[[np.ndarray], Any] = np.asarray) -> list[list[Hypothesis]]:
        """The best of each sentence.

        :param as_array: converts their arrays.
        """
        count, scores = self.options.nbest, self.options.token_scores
        return [
            [_hypothesis(as_array, *each) for each in self.search.hypotheses(sentence, count, token_scores=scores)]
            for sentence in range(len(self.limits))
        ]


def _hypothesis(
    as_array: Callable[[np.ndarray], Any], score: float, tokens: Any, token_scores: Any, attention: Any
) -> Hypothesis:
    return Hypothesis(
        as_array(np.frombuffer(tokens, np.int64)),
        score,
        None if token_scores is None else as_array(np.frombuffer(token_scores, np.float32)),
        None if attention is None else as_array(np.frombuffer(attention, np.float32).reshape(len(tokens), -1)),
    )
