"""Systems alternate in rounds; a ratio compares times of the same round."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

Times = dict[str, list[float]]
_REST = 0.3  # seconds in which the previous system's threads stop busy waiting


def take_turns(systems: Mapping[str, Callable[[], float]], rounds: int, *, report: Callable[[int], None]) -> Times:
    """Seconds of each system in each round, as returned by its call. Warm the systems up first."""
    times: Times = {name: [] for name in systems}
    for number in range(rounds):
        for name, run in systems.items():
            time.sleep(_REST)
            times[name].append(run())
        report(number + 1)
    return times


def ratios(times: Times, slower: str, faster: str) -> list[float]:
    """The speed of `faster` relative to `slower`, in each round."""
    return [one / other for one, other in zip(times[slower], times[faster], strict=True)]


def median_min_max(values: Sequence[float], digits: int = 2) -> list[float]:
    """Median, minimum and maximum."""
    return [round(each, digits) for each in (statistics.median(values), min(values), max(values))]


def report(text: str) -> None:
    """Prints progress to stderr."""
    print(text, file=sys.stderr, flush=True)
