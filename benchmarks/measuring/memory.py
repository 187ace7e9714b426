"""Measures the memory of a process and its descendants."""

from __future__ import annotations

import itertools
from pathlib import Path


def memory(process: int, kind: str = "Pss") -> float:
    """MiB of the process and its descendants together. Shared pages count proportionally.

    :param kind: "Pss", or "Anonymous": without pages of mapped files, which the system can drop and read again.
    """
    return sum(_own_memory(each, kind) for each in _family(process))


def _family(process: int) -> list[int]:
    children = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children += [int(child) for child in path.read_text().split()]
        except OSError:  # it has ended
            continue
    return [process, *itertools.chain.from_iterable(map(_family, children))]


def _own_memory(process: int, kind: str) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:")), 0.0)
