"""How far a stage is, and how long it will still take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tqdm import tqdm


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def progress(stage: str, everything: Sequence[Sized], left: Sequence[Sized]) -> tqdm:
    """A progress bar in pairs, on a terminal alone.

    :param left: what an earlier run has not done.
    """
    total = sum(each.size for each in everything)
    return tqdm(
        desc=stage,
        total=total,
        initial=total - sum(each.size for each in left),
        unit=" pairs",
        unit_scale=True,
        smoothing=0.05,
        disable=None,
    )
