"""Systems alternate in rounds; a ratio compares times of the same round."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

Times = dict[str, list[float]]
WARM_UP = 3  # calls of each that `compare` does not count
_REST = 0.3


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def take_turns(
    systems: Mapping[str, Callable[[], float]], rounds: int, *, title: str = "", rest: float = _REST
) -> Times:
    """Seconds of each system in each round, as returned by its call. Warm the systems up first.

    :param title: reported with the number of each round; "": nothing is reported.
    :param rest: seconds before each call, in which the previous system's threads stop busy waiting.
    """
    times: Times = {name: [] for name in systems}
    for number in range(rounds):
        for name, run in systems.items():
            time.sleep(rest)
            times[name].append(run())
        if title:
            report(f"{title}: round {number + 1} of {rounds}")
    return times


def compare(before: Callable[[], object], now: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Median milliseconds of each, and the median over rounds of the ratio before / now."""
    calls = {"before": partial(seconds, before), "now": partial(seconds, now)}
    take_turns(calls, WARM_UP, rest=0)
    times = take_turns(calls, rounds, rest=0)
    medians = {f"{name}_ms": round(1000 * statistics.median(each), 2) for name, each in times.items()}
    return {**medians, "ratio": round(statistics.median(ratios(times, "before", "now")), 2)}


def ratios(times: Times, slower: str, faster: str) -> list[float]:
    """The speed of `faster` relative to `slower`, in each round."""
    return [one / other for one, other in zip(times[slower], times[faster], strict=True)]


def median_min_max(values: Sequence[float], digits: int = 2) -> list[float]:
    """Median, minimum and maximum."""
    return [round(each, digits) for each in (statistics.median(values), min(values), max(values))]


def report(text: str) -> None:
    """Prints progress to stderr."""
    print(text, file=sys.stderr, flush=True)
