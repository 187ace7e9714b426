"""Systems take turns, round by round; a ratio is that of one round's times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

Times = dict[str, list[float]]
_REST = 0.3  # seconds, in which the threads of the system before stop waiting actively for work


def take_turns(systems: Mapping[str, Callable[[], float]], rounds: int, *, report: Callable[[int], None]) -> Times:
    """Seconds of each system in each round, as its call gives them. Warm them up before."""
    times: Times = {name: [] for name in systems}
    for number in range(rounds):
        for name, run in systems.items():
            time.sleep(_REST)
            times[name].append(run())
        report(number + 1)
    return times


def ratios(times: Times, slower: str, faster: str) -> list[float]:
    """How many times as fast as `slower` the system `faster` was, in each round."""
    return [one / other for one, other in zip(times[slower], times[faster], strict=True)]


def report(text: str) -> None:
    """Says on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)
