"""How far a stage is, and how long it will still take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

from tqdm import tqdm


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def progress(stage: str, everything: Sequence[Sized], left: Sequence[Sized]) -> tqdm:
    """A progress bar in pairs on a terminal; elsewhere one line that the stage begins.

    :param left: what an earlier run has not done.
    """
    total, to_do = sum(each.size for each in everything), sum(each.size for each in left)
    if not sys.stderr.isatty():
        print(f"{stage}: {to_do:,} of {total:,} pairs", file=sys.stderr, flush=True)
    return tqdm(
        desc=stage,
        total=total,
        initial=total - to_do,
        unit=" pairs",
        unit_scale=True,
        smoothing=0.05,
        disable=None,
    )
