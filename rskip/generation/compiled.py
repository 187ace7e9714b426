"""Beam search by the compiled search. B sentences, K beams, T target length, S source length, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rskip.cpu import CpuTransformer, Library, Search
from rskip.cpu.decoder import CpuDecoding
from rskip.cpu.library import WORK_TO_SHARE
from rskip.cpu.structures import TYPES, kind_of
from rskip.cpu.threads import threads
from rskip.generation.decoder import StepDecoder
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions
from rskip.generation.special_tokens import SpecialTokens

_STEPS_TO_KNOW = 64  # number of further tokens for which the table of positions is enlarged at once

EachStep = Callable[[int], None] | None


def compiled_search(
    library: Library,
    decoder: StepDecoder,
    memory: Any,
    options: SearchOptions,
    *,
    limits: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None,
    special: SpecialTokens,
    each_step: EachStep,
) -> list[list[Hypothesis]]:
    """As `beam_search`, for a decoder on a CPU. If kernels compute all of its step, C runs the whole loop.

    :param limits: maximum number of tokens of each sentence, without its end.
    :param prefixes: forced first tokens of each sentence, padded at the end.
    """
    search = _Compiled(library, options, limits, prefixes, special)
    with torch.inference_mode():
        state: Any = decoder.start(memory, attention=options.attention)
        decoding = decoder.decoding(state, options.beam) if isinstance(decoder, CpuTransformer) else None
        if decoding is None:
            search.by_steps(decoder, state, each_step)
        else:
            search.by_kernels(decoding, each_step)
    return search.hypotheses()


class _Compiled:
    def __init__(
        self,
        library: Library,
        options: SearchOptions,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        special: SpecialTokens,
    ) -> None:
        self.library, self.options, self.limits, self.prefixes = library, options, limits, prefixes
        self.special, self.start = special, special.end if special.start is None else special.start
        self.search: Search
        self.words, self.source = 0, 0  # V, and S if attention is kept

    def by_kernels(self, decoding: CpuDecoding, each_step: EachStep) -> None:
        """Searches over a decoder whose step is one program."""
        self._open(decoding.words, decoding.arguments.source)
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

    def by_steps(self, decoder: StepDecoder, state: Any, each_step: EachStep) -> None:
        """Searches over any decoder."""
        tokens, step, finished = torch.full((len(self.limits), 1), self.start), 1, False
        while not finished:
            if each_step is not None:
                each_step(step)
            logits, attention = decoder.step(tokens, state), None
            if kind_of(logits) not in TYPES:
                logits = logits.float()
            if self.options.attention:
                assert state.attention is not None, "the decoder gives no attention"
                attention = state.attention.float()
            if step == 1:
                self._open(logits.size(-1), 0 if attention is None else attention.size(-1))
            logits = self._checked("logits", logits, (*tokens.shape, self.words))
            if attention is not None:
                attention = self._checked("attention", attention, (*tokens.shape, self.source))
            finished = self.search.step(
                logits.data_ptr(), TYPES[kind_of(logits)], None if attention is None else attention.data_ptr(),
                threads=threads() if logits.numel() >= WORK_TO_SHARE else 1,
            )  # fmt: skip
            if not finished:
                last, parents, rows = self.search.beams()
                tokens = torch.tensor(last)
                decoder.reorder(state, torch.tensor(parents), None if rows is None else torch.tensor(rows))
            step += 1

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The best of each sentence."""
        count, scores = self.options.nbest, self.options.token_scores
        return [
            [self._hypothesis(*each) for each in self.search.hypotheses(sentence, count, token_scores=scores)]
            for sentence in range(len(self.limits))
        ]

    def _hypothesis(self, score: float, tokens: Any, token_scores: Any, attention: Any) -> Hypothesis:
        return Hypothesis(
            torch.frombuffer(tokens, dtype=torch.int64),
            score,
            None if token_scores is None else torch.frombuffer(token_scores, dtype=torch.float32),
            None if attention is None else torch.frombuffer(attention, dtype=torch.float32).view(len(tokens), -1),
        )

    def _checked(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        if tensor.shape != shape or not tensor.is_cpu:
            given = f"{tuple(tensor.shape)} on {tensor.device}"
            raise ValueError(f"the decoder's {name} are {given}: expected {shape} on the CPU")
        return tensor.contiguous()

    def _open(self, words: int, source: int) -> None:
        options, special = self.options, self.special
        self.words, self.source = words, source if options.attention else 0
        self.search = Search(
            self.library, limits=self.limits, prefixes=self.prefixes, words=words, beams=options.beam,
            start=self.start, end=special.end, padding=special.padding, unknown=special.unknown,
            min_length=options.min_length, ngram=options.no_repeat_ngram, gnmt=options.length_penalty_kind == "gnmt",
            source=self.source, length_penalty=options.length_penalty,
            unknown_penalty=options.unknown_penalty, temperature=options.temperature, sampling=options.sampling,
            top_k=options.top_k, top_p=options.top_p, seed=options.seed,
        )  # fmt: skip
