"""Sentences of like lengths together."""

from __future__ import annotations

from collections.abc import Sequence

_USUAL_BEAM = 4


def length_batches(lengths: Sequence[int], *, max_tokens: int, beam: int) -> list[list[int]]:
    """Indices of all sentences in batches, the longest sentences first.

    A batch filled up to its longest sentence has at most `max_tokens` tokens, fewer in proportion where the beam is
    wider than 4, since memory grows with it. A longer sentence is a batch of its own.

    :param lengths: tokens of each sentence.
    """
    room = max_tokens * _USUAL_BEAM // max(beam, _USUAL_BEAM)
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
