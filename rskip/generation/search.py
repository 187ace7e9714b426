"""Searches and samples token by token. B sentences, K beams, T target length, S source length, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rskip.generation.compiled import NOT_A_NUMBER
from rskip.generation.decoder import StepDecoder
from rskip.generation.hypothesis import Hypothesis
from rskip.generation.options import SearchOptions, SpecialTokens
from rskip.generation.processors import Step, build_processors
from rskip.generation.sampling import sample

_DEFAULTS, _USUAL_TOKENS = SearchOptions(), SpecialTokens()
_FINISHED_SHARE = 8  # finished sentences leave the batch if they are at least one in this number


def beam_search(
    decoder: StepDecoder,
    memory: Any,
    options: SearchOptions = _DEFAULTS,
    *,
    source_lengths: Tensor,
    prefix: Tensor | None = None,
    special: SpecialTokens = _USUAL_TOKENS,
    each_step: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `options.nbest` best finished hypotheses of each sentence, best first.

    It has fairseq's rules. A hypothesis is finished when its end is among the K best continuations of its sentence. A
    sentence is finished when K of its hypotheses are, or at its max length, where every hypothesis must end. Sentences
    are independent of each other, except in sampling. `find_search` has the same search in C, which is faster on a CPU.

    :param memory: the decoder's input, one row per sentence.
    :param source_lengths: (B,) number of tokens of each source, including its end.
    :param prefix: (B, P) forced first tokens, padded on the right.
    :param each_step: called before each step with its number, from 1. In C it is called before the first step and then
        about every 0.2 seconds.
    :raises ValueError: the model's logits are NaN.
    """
    if not len(source_lengths):
        return []
    limits = [options.max_length(length, decoder.max_positions) for length in source_lengths.tolist()]
    prefixes = None if prefix is None else prefix.tolist()
    with torch.inference_mode():
        search = _Search(decoder, options, source_lengths.device, limits, prefixes, special)
        search.run(memory, each_step)
    ranked = (sorted(finished, key=lambda each: each.score, reverse=True) for finished in search.finished)
    return [[_hypothesis(each) for each in best[: options.nbest]] for best in ranked]


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first, each (B, N): total log-probability, beam, token."""

    scores: Tensor
    beams: Tensor
    tokens: Tensor


def best(logits: Tensor, offsets: Tensor, count: int) -> Candidates:
    """The `count` best of logits (B, K, V) + offsets (B, K), over all beams of each sentence."""
    vocabulary = logits.size(2)
    scores, index = (logits + offsets[:, :, None]).flatten(1).topk(count)
    return Candidates(scores, index // vocabulary, index % vocabulary)


@dataclass(frozen=True)
class _Finished:
    tokens: list[int]
    score: float
    cumulative: list[float] | None
    attention: Tensor | None


@dataclass
class _Beams:
    """The unfinished hypotheses, on the CPU. Position 0 of `tokens` is the start. None: not requested."""

    tokens: Tensor  # (B, K, T + 1)
    scores: Tensor  # (B, K), log-probability of each hypothesis, or -inf if it can't continue
    cumulative: Tensor | None  # (B, K, T), log-probability up to each token
    attention: Tensor | None  # (B, K, T, S)

    def continued(self, parents: Tensor, tokens: Tensor, scores: Tensor, sentences: Tensor | None) -> _Beams:
        """Extends parents[:, k] (B', K) by a token as beam k. Only `sentences` (B') stay; None: all."""
        longer = torch.cat([_beams_of(self.tokens, parents, sentences), tokens[:, :, None]], 2)
        cumulative = None
        if self.cumulative is not None:
            cumulative = torch.cat([_beams_of(self.cumulative, parents, sentences), scores[:, :, None]], 2)
        attention = None if self.attention is None else _beams_of(self.attention, parents, sentences)
        return _Beams(longer, scores, cumulative, attention)


class _Search:
    """The state of one search. Rows are the remaining sentences of the batch.

    The logits stay on their device. The search waits for the device once per step, for the candidates. All other state
    is on the CPU, and the input of the next step is copied to the device.
    """

    def __init__(
        self,
        decoder: StepDecoder,
        options: SearchOptions,
        device: torch.device,
        limits: list[int],
        prefixes: list[list[int]] | None,
        special: SpecialTokens,
    ) -> None:
        self.device, count = device, len(limits)
        self.decoder, self.options = decoder, options
        self.prefix: list[list[int]] = [[]] * count if prefixes is None else prefixes  # of each row
        self.processors, self.end = build_processors(options, special), special.end
        self.generator = torch.Generator(self.device).manual_seed(options.seed) if options.sampling else None
        self.max_lengths = limits  # maximum number of tokens before the end, for each row
        self.rows = list(range(count))  # the sentence of each row
        self.active = [True] * count  # whether each row continues
        self.beams = _Beams(
            tokens=torch.full((count, 1, 1), special.end if special.start is None else special.start),
            scores=torch.zeros(count, 1),
            cumulative=torch.zeros(count, 1, 0) if options.token_scores else None,
            attention=None,
        )
        self.finished: list[list[_Finished]] = [[] for _ in range(count)]  # of each sentence

    def run(self, memory: Any, each_step: Callable[[int], None] | None) -> None:
        state = self.decoder.start(memory, attention=self.options.attention)
        for length in range(max(self.max_lengths) + 1):
            if each_step is not None:
                each_step(length + 1)
            logits = self.decoder.step(self._on_device(self.beams.tokens[:, :, -1]), state)
            candidates = self._candidates(logits, length)
            attention: list[Tensor] = []
            if self.options.attention:
                assert state.attention is not None, "the decoder returns no attention"
                attention.append(state.attention)
            scores, beams, tokens, *attention = _on_host(*candidates, *attention)
            candidates = Candidates(scores, beams, tokens)
            for each in attention:
                self._record_attention(each)
            ends = candidates.tokens.eq(self.end)
            any_ends = bool(ends.any())
            if any_ends:
                ends &= candidates.scores.isfinite()
                self._finish(candidates, ends, length)
            self._mark_inactive(candidates, length)
            if not any(self.active):
                return
            sentences = self._leaving()
            parents = self._continue(candidates, ends if any_ends else None, sentences)
            self.decoder.reorder(
                state, self._on_device(parents), None if sentences is None else self._on_device(sentences)
            )

    def _on_device(self, tensor: Tensor) -> Tensor:
        return tensor if self.device.type == "cpu" else tensor.to(self.device, non_blocking=True)

    def _candidates(self, logits: Tensor, length: int) -> Candidates:
        if self.options.temperature != 1:
            logits = logits.float() / self.options.temperature
        logits = logits.float().contiguous()
        normaliser, scores = logits.logsumexp(-1), self._on_device(self.beams.scores)
        step = Step(length, self.beams.tokens, self.prefix, self.max_lengths)
        for process in self.processors:
            process(logits, step)
        width = self.options.beam
        if self.generator is not None:
            if length == 0:
                logits, normaliser, scores = (
                    each.expand(-1, width, *each.shape[2:]) for each in (logits, normaliser, scores)
                )
            tokens, log_probabilities = sample(logits - normaliser[:, :, None], self.options, self.generator)
            beams = torch.arange(self.beams.scores.size(1), device=tokens.device).expand_as(tokens)
            return Candidates(scores + log_probabilities, beams, tokens)
        count = min(2 * width, logits.size(1) * logits.size(2) - 1)
        return best(logits, scores - normaliser, count)

    def _record_attention(self, attention: Tensor) -> None:
        new = attention.float()[:, :, None]  # (B, K, 1, S)
        past = self.beams.attention
        self.beams.attention = new if past is None else torch.cat([past, new], 2)

    def _finish(self, candidates: Candidates, ends: Tensor, length: int) -> None:
        """Stores the hypotheses that end among the K best of their sentence."""
        rows, places = ends[:, : self.options.beam].nonzero(as_tuple=True)
        parents = candidates.beams[rows, places]
        beams = self.beams
        tokens = beams.tokens[rows, parents, 1:].tolist()
        scores = candidates.scores[rows, places].tolist()
        cumulative = None if beams.cumulative is None else beams.cumulative[rows, parents].tolist()
        attention = None if beams.attention is None else beams.attention[rows, parents]
        penalty = self.options.penalty(length + 1)
        for number, row in enumerate(rows.tolist()):
            finished = self.finished[self.rows[row]]
            if not self.active[row] or len(finished) == self.options.beam:
                continue
            finished.append(
                _Finished(
                    tokens=[*tokens[number], self.end],
                    score=scores[number] / penalty,
                    cumulative=None if cumulative is None else [*cumulative[number], scores[number]],
                    attention=None if attention is None else attention[number],
                )
            )

    def _mark_inactive(self, candidates: Candidates, length: int) -> None:
        best = candidates.scores.amax(1).tolist()
        for row, limit in enumerate(self.max_lengths):
            if not self.active[row]:
                continue
            finished = self.finished[self.rows[row]]
            if math.isnan(best[row]) or best[row] == math.inf:
                raise ValueError(NOT_A_NUMBER)
            if len(finished) == self.options.beam or length >= limit or best[row] == -math.inf:
                self.active[row] = False
                if not finished:  # no token may follow, so the hypothesis ends here
                    self._give_up(row)

    def _give_up(self, row: int) -> None:
        beams = self.beams
        tokens = beams.tokens[row, 0, 1:].tolist()
        cumulative = None if beams.cumulative is None else [*beams.cumulative[row, 0].tolist(), -math.inf]
        attention = None if beams.attention is None else beams.attention[row, 0]
        self.finished[self.rows[row]].append(_Finished([*tokens, self.end], -math.inf, cumulative, attention))

    def _leaving(self) -> Tensor | None:
        """The remaining rows if finished sentences leave now; None if they don't. Rows from the end fill the gaps."""
        remaining = sum(self.active)
        if (len(self.active) - remaining) * _FINISHED_SHARE < len(self.active):
            return None
        late = [row for row in range(remaining, len(self.active)) if self.active[row]]
        order = [row if self.active[row] else late.pop() for row in range(remaining)]
        self.rows = [self.rows[row] for row in order]
        self.active = [True] * remaining
        self.max_lengths = [self.max_lengths[row] for row in order]
        self.prefix = [self.prefix[row] for row in order]
        return torch.tensor(order)

    def _continue(self, candidates: Candidates, ends: Tensor | None, sentences: Tensor | None) -> Tensor:
        """Continues with the K best candidates that don't end. Returns their parents (B', K)."""
        width = self.options.beam
        if sentences is not None:
            candidates = Candidates(*(each[sentences] for each in candidates))
            ends = None if ends is None else ends[sentences]
        if ends is None:
            chosen = Candidates(*(each[:, :width] for each in candidates))
        else:
            order = ends.int().argsort(dim=1, stable=True)[:, :width]
            chosen = Candidates(*(each.gather(1, order) for each in candidates))
            chosen.scores.masked_fill_(ends.gather(1, order), -math.inf)
        self.beams = self.beams.continued(chosen.beams, chosen.tokens, chosen.scores, sentences)
        return chosen.beams


def _on_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copies tensors of one device to the CPU, and waits for the device only once."""
    device = tensors[0].device
    if device.type == "cpu":
        return tensors
    copies = tuple(each.to("cpu", non_blocking=device.type == "cuda") for each in tensors)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return copies


def _beams_of(history: Tensor, parents: Tensor, sentences: Tensor | None) -> Tensor:
    """The history (B, K, T, ...) of each beam's parent."""
    rows = torch.arange(len(parents)) if sentences is None else sentences
    index = parents + rows[:, None] * history.size(1)
    chosen = history.flatten(0, 1).index_select(0, index.view(-1))
    return chosen.view(*parents.shape, *history.shape[2:])


def _hypothesis(finished: _Finished) -> Hypothesis:
    token_scores = None
    if finished.cumulative is not None:
        token_scores = torch.tensor(finished.cumulative).diff(prepend=torch.zeros(1))
    attention = None if finished.attention is None else finished.attention.clone()
    return Hypothesis(torch.tensor(finished.tokens), finished.score, token_scores, attention)
