"""Times two implementations that alternate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 3  # calls of each that do not count


def compare(before: Callable[[], object], now: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Median milliseconds of each, and the median over rounds of the ratio before / now."""
    for _ in range(WARM_UP):
        seconds(before), seconds(now)
    times = [(seconds(before), seconds(now)) for _ in range(rounds)]
    return {
        "before_ms": round(1000 * statistics.median(pair[0] for pair in times), 2),
        "now_ms": round(1000 * statistics.median(pair[1] for pair in times), 2),
        "ratio": round(statistics.median(pair[0] / pair[1] for pair in times), 2),
    }


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
