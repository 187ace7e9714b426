"""What a beam search finds."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One finished hypothesis of T tokens, the end included, on the CPU.

    :param tokens: (T,) int64, without the start, with the end.
    :param score: its log-probability over its length penalty.
    :param token_scores: (T,) each token's log-probability, where asked for.
    :param attention: (T, S) each token's attention over the source's S tokens (padding included), where asked for.
    """

    tokens: Tensor
    score: float
    token_scores: Tensor | None = None
    attention: Tensor | None = None
