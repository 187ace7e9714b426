"""The CPU cores of this process."""

from __future__ import annotations

import os
from pathlib import Path

_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, as with `docker run --cpus 2`: microseconds in a period


def available_cores() -> int:
    """CPU cores that this process may use: those that it may run on, and no more than a container's limit grants."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, _LIMIT.read_text().split())
    except (OSError, ValueError):  # "max" for the quota: no limit
        return count
    return min(count, max(1, -(-quota // period)))
