"""What a search does to the logits of a step before it takes the best: one processor for each rule.

B sentences, K beams, T tokens so far, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rskip.generation.options import SearchOptions
from rskip.generation.special_tokens import SpecialTokens


class Step(NamedTuple):
    """How far a search is.

    length: T, the tokens of every hypothesis.
    tokens: (B, K, T + 1) the hypotheses, each behind its start, on the CPU.
    prefixes: the first tokens of each sentence that are forced, filled up with padding.
    limits: the most tokens of each sentence before its end.
    """

    length: int
    tokens: Tensor
    prefixes: Sequence[Sequence[int]]
    limits: Sequence[int]


class StepProcessor(Protocol):
    """Changes the logits (B, K, V) of a step in place. Only a negative `UnknownPenalty` may make one larger."""

    def __call__(self, logits: Tensor, step: Step) -> None: ...


def build_processors(options: SearchOptions, special: SpecialTokens) -> list[StepProcessor]:
    """The processors of these options, in the order in which they are called."""
    rules: list[StepProcessor] = [Forbidden(special.padding)]
    if options.unknown_penalty == math.inf:
        rules.append(Forbidden(special.unknown))
    if options.min_length:
        rules.append(MinLength(options.min_length, special.end))
    if options.no_repeat_ngram:
        rules.append(NoRepeatedNgrams(options.no_repeat_ngram, special.padding))
    forced = ForcedTokens(rules, special)
    if options.unknown_penalty in (0, math.inf):
        return [forced]
    return [UnknownPenalty(options.unknown_penalty, special.unknown), forced]


class UnknownPenalty:
    """Makes the unknown token less probable, or with a negative penalty more."""

    def __init__(self, penalty: float, unknown: int) -> None:
        self.penalty, self.unknown = penalty, unknown

    def __call__(self, logits: Tensor, step: Step) -> None:
        logits[:, :, self.unknown] -= self.penalty


class Forbidden:
    """A token that never follows."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, logits: Tensor, step: Step) -> None:
        logits.select(2, self.token).fill_(-math.inf)


class MinLength:
    """No end before `length` tokens."""

    def __init__(self, length: int, end: int) -> None:
        self.length, self.end = length, end

    def __call__(self, logits: Tensor, step: Step) -> None:
        if step.length < self.length:
            logits.select(2, self.end).fill_(-math.inf)


class NoRepeatedNgrams:
    """No n-gram of `size` tokens twice in a hypothesis."""

    def __init__(self, size: int, padding: int) -> None:
        self.size, self.padding = size, padding

    def __call__(self, logits: Tensor, step: Step) -> None:
        if step.length:
            hypotheses = step.tokens[:, :, 1:].flatten(0, 1)
            repeated = repeated_ngram_tokens(_beside(logits, hypotheses), self.size, filler=self.padding)
            logits.view(-1, logits.size(2)).scatter_(1, repeated, -math.inf)


class ForcedTokens:
    """Where a token is forced, by a prefix or as the end at the greatest length, no other one follows.

    :param rules: what else forbids tokens. A forced token follows whatever they forbid.
    """

    def __init__(self, rules: Iterable[StepProcessor], special: SpecialTokens) -> None:
        self.rules, self.padding, self.end = tuple(rules), special.padding, special.end

    def __call__(self, logits: Tensor, step: Step) -> None:
        forced = self._forced(step)
        if forced:
            rows, tokens = _beside(logits, torch.tensor(forced).T)
            index = tokens[:, None, None].expand(-1, logits.size(1), 1)
            allowed = logits[rows].gather(2, index)
        for rule in self.rules:
            rule(logits, step)
        if forced:
            logits[rows] = torch.full_like(logits[rows], -math.inf).scatter_(2, index, allowed)

    def _forced(self, step: Step) -> list[tuple[int, int]]:
        """The rows whose next token is forced, each with it."""
        length, limits, prefixes = step.length, step.limits, step.prefixes
        if min(limits) > length >= len(prefixes[0]):
            return []
        forced = [
            (row, self.end if limit <= length else (prefix[length] if length < len(prefix) else self.padding))
            for row, (limit, prefix) in enumerate(zip(limits, prefixes, strict=True))
        ]
        return [(row, token) for row, token in forced if token != self.padding]


def repeated_ngram_tokens(hypotheses: Tensor, size: int, *, filler: int) -> Tensor:
    """The tokens (R, N) that would complete an n-gram of `size` tokens which their row already has.

    :param hypotheses: (R, T) the tokens so far, without the start, which size 1 would forbid too.
    :param filler: fills rows up; a row's tokens may come twice.
    """
    if hypotheses.size(1) < size:
        return hypotheses[:, :0]
    ngrams = hypotheses.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = hypotheses[:, hypotheses.size(1) - size + 1 :]  # (R, size - 1)
    begins_as_last = (ngrams[:, :, :-1] == last[:, None]).all(2)
    return ngrams[:, :, -1].masked_fill(~begins_as_last, filler)


def _beside(logits: Tensor, tensor: Tensor) -> Tensor:
    """The tensor, which is on the CPU, on the logits' device, without a wait for it."""
    return tensor if logits.device.type == "cpu" else tensor.to(logits.device, non_blocking=True)
