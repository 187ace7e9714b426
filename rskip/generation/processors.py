"""Changes to the logits of a step before the search takes the best tokens: one processor per rule.

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
    """The position of a search.

    length: T, the number of tokens of every hypothesis.
    tokens: (B, K, T + 1) the start token and the tokens of each hypothesis, on the CPU.
    prefixes: the forced first tokens of each sentence, padded at the end.
    limits: the maximum number of tokens of each sentence, without its end.
    """

    length: int
    tokens: Tensor
    prefixes: Sequence[Sequence[int]]
    limits: Sequence[int]


class StepProcessor(Protocol):
    """Changes the logits (B, K, V) of a step in place. Only a negative `UnknownPenalty` may increase a logit."""

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
    """Makes the unknown token less probable, or more probable if the penalty is negative."""

    def __init__(self, penalty: float, unknown: int) -> None:
        self.penalty, self.unknown = penalty, unknown

    def __call__(self, logits: Tensor, step: Step) -> None:
        logits[:, :, self.unknown] -= self.penalty


class Forbidden:
    """Forbids a token everywhere."""

    def __init__(self, token: int) -> None:
        self.token = token

    def __call__(self, logits: Tensor, step: Step) -> None:
        logits.select(2, self.token).fill_(-math.inf)


class MinLength:
    """Forbids the end before `length` tokens."""

    def __init__(self, length: int, end: int) -> None:
        self.length, self.end = length, end

    def __call__(self, logits: Tensor, step: Step) -> None:
        if step.length < self.length:
            logits.select(2, self.end).fill_(-math.inf)


class NoRepeatedNgrams:
    """Forbids a second occurrence of an n-gram of `size` tokens in a hypothesis."""

    def __init__(self, size: int, padding: int) -> None:
        self.size, self.padding = size, padding

    def __call__(self, logits: Tensor, step: Step) -> None:
        if step.length:
            hypotheses = step.tokens[:, :, 1:].flatten(0, 1)
            repeated = repeated_ngram_tokens(_beside(logits, hypotheses), self.size, filler=self.padding)
            logits.view(-1, logits.size(2)).scatter_(1, repeated, -math.inf)


class ForcedTokens:
    """Allows only the forced token, if a prefix forces one, or if the maximum length forces the end.

    :param rules: the processors that forbid tokens. They can't forbid a forced token.
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
        """The rows whose next token is forced, each with that token."""
        length, limits, prefixes = step.length, step.limits, step.prefixes
        if min(limits) > length >= len(prefixes[0]):
            return []
        forced = [
            (row, self.end if limit <= length else (prefix[length] if length < len(prefix) else self.padding))
            for row, (limit, prefix) in enumerate(zip(limits, prefixes, strict=True))
        ]
        return [(row, token) for row, token in forced if token != self.padding]


def repeated_ngram_tokens(hypotheses: Tensor, size: int, *, filler: int) -> Tensor:
    """The tokens (R, N) that would repeat an n-gram of `size` tokens of their row.

    :param hypotheses: (R, T) the tokens so far. They lack the start token, which size 1 would otherwise forbid.
    :param filler: pads the rows. A token may occur twice in a row.
    """
    if hypotheses.size(1) < size:
        return hypotheses[:, :0]
    ngrams = hypotheses.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = hypotheses[:, hypotheses.size(1) - size + 1 :]  # (R, size - 1)
    begins_as_last = (ngrams[:, :, :-1] == last[:, None]).all(2)
    return ngrams[:, :, -1].masked_fill(~begins_as_last, filler)


def _beside(logits: Tensor, tensor: Tensor) -> Tensor:
    """Copies the tensor from the CPU to the logits' device, without waiting."""
    return tensor if logits.device.type == "cpu" else tensor.to(logits.device, non_blocking=True)
