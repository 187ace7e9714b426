"""Represents the result of a beam search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
