"""Represents the result of a beam search, also as plain values for JSON and other processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy
from msgspec import Meta

from rskip.settings.kinds import Index

Values = Any  # a Tensor or a numpy.ndarray


@dataclass(frozen=True)
class Hypothesis:
    """A finished hypothesis of T tokens, including the end, on the CPU.

    Its values are tensors if PyTorch searched, and NumPy arrays otherwise.

    :param tokens: (T,) int64, without the start, with the end.
    :param score: its log-probability divided by its length penalty.
    :param token_scores: (T,) log-probability of each token, if requested.
    :param attention: (T, S) attention of each token over the source's S tokens (including padding), if requested.
    """

    tokens: Values
    score: float
    token_scores: Values | None = None
    attention: Values | None = None


_Score = Annotated[float, Meta(extra={"also": (math.inf, -math.inf)})]
_FlatHypothesis = tuple[list[Index], _Score, list[_Score] | None, list[list[float]] | None]
FlatBatch = list[list[_FlatHypothesis]]


def flat(found: Sequence[Sequence[Hypothesis]]) -> FlatBatch:
    """The hypotheses of a batch as plain values, also for JSON: each tensor would need a file in shared memory."""
    return [
        [(each.tokens.tolist(), each.score, _listed(each.token_scores), _listed(each.attention)) for each in hypotheses]
        for hypotheses in found
    ]


def rebuilt(values: FlatBatch) -> list[list[Hypothesis]]:
    """The inverse of `flat`, with NumPy arrays."""
    return [
        [Hypothesis(numpy.array(tokens, numpy.int64), score, *map(_array, rest)) for tokens, score, *rest in hypotheses]
        for hypotheses in values
    ]


def _listed(values: Values | None) -> Any:
    return None if values is None else values.tolist()


def _array(values: Any) -> Values | None:
    return None if values is None else numpy.array(values, numpy.float32)
