"""Changes to the logits of a step before the search takes the best tokens: one processor per rule.

B sentences, K beams, T tokens so far, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rskip.generation.options import SearchOptions, SpecialTokens


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


# Changes the logits (B, K, V) of a step in place. Only a negative penalty of the unknown token may increase a logit.
StepProcessor = Callable[[Tensor, Step], None]


def build_processors(options: SearchOptions, special: SpecialTokens) -> list[StepProcessor]:
    """The processors of these options, in the order in which they are called."""
    rules: list[StepProcessor] = [lambda logits, step: _forbid(logits, special.padding)]
    if options.unknown_penalty == math.inf:
        rules.append(lambda logits, step: _forbid(logits, special.unknown))
    if options.min_length:
        rules.append(lambda logits, step: _forbid(logits, special.end) if step.length < options.min_length else None)
    if options.no_repeat_ngram:
        rules.append(partial(_forbid_repeated_ngrams, size=options.no_repeat_ngram, padding=special.padding))
    forced = ForcedTokens(rules, special)
    if options.unknown_penalty in (0, math.inf):
        return [forced]
    return [partial(_penalise, token=special.unknown, penalty=options.unknown_penalty), forced]


def _forbid(logits: Tensor, token: int) -> None:
    logits.select(2, token).fill_(-math.inf)


def _penalise(logits: Tensor, step: Step, *, token: int, penalty: float) -> None:
    logits[:, :, token] -= penalty


def _forbid_repeated_ngrams(logits: Tensor, step: Step, *, size: int, padding: int) -> None:
    """Forbids a second occurrence of an n-gram of `size` tokens in a hypothesis."""
    if step.length:
        hypotheses = step.tokens[:, :, 1:].flatten(0, 1)
        repeated = repeated_ngram_tokens(_beside(logits, hypotheses), size, filler=padding)
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
