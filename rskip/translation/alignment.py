"""Which source token a target token came from."""

from __future__ import annotations

from torch import Tensor


def hard_alignment(attention: Tensor, *, source_start: int = 0, target_start: int = 0) -> list[tuple[int, int]]:
    """(source token, target token) for each target token: the source token that got the most of its attention.

    :param attention: (T + 1, S + 1), both ends last; they align with nothing.
    :param source_start, target_start: the numbers of the first tokens.
    """
    best = attention[:-1, :-1].argmax(1).tolist()
    return [(source_start + source, target_start + target) for target, source in enumerate(best)]
