"""Mean and spread of a figure over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec


class Summary(msgspec.Struct, frozen=True):
    """A figure over seeds: its mean, and the sample standard deviation (n - 1), None of one seed."""

    mean: float
    spread: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


def summarise(values: Sequence[float]) -> Summary:
    """The summary of one value a seed, at least one."""
    return Summary(fmean(values), stdev(values) if len(values) > 1 else None)
