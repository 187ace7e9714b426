"""Several processes, started by torchrun, that translate one input together."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from io import FileIO
from pathlib import Path

from rskip.translation.journal import Entry, Journal
from rskip.translation.resume import part_name, write_all

_BLOCK = 1 << 20
FOREVER = timedelta(days=365)  # however much later than the first rank the last one ends


def merge_parts(output: Path, count: int) -> None:
    """Makes the finished output out of what `count` ranks wrote, window after window, and removes their parts.

    :raises ValueError: a part is missing.
    """
    parts = [output.with_name(part_name(output.name, rank, count)) for rank in range(count)]
    journals = [Journal(part.with_name(f"{part.name}.journal")) for part in parts]
    for part, journal in zip(parts, journals, strict=True):
        if not (part.exists() and journal.path.exists()):
            raise ValueError(
                f"{part} is missing: all processes must write to one folder. When it is there, go on with --resume"
            )
    merged = output.with_name(f"{output.name}.partial-merged")
    try:
        with merged.open("wb", buffering=0) as file:
            _copy_in_turns(parts, [journal.entries() for journal in journals], file)
            os.fsync(file.fileno())
        merged.replace(output)
    finally:
        merged.unlink(missing_ok=True)
    for path in (*parts, *(journal.path for journal in journals)):
        path.unlink()


def _copy_in_turns(parts: Sequence[Path], entries: Sequence[Iterator[Entry]], target: FileIO) -> None:
    descriptors = [os.open(part, os.O_RDONLY) for part in parts]
    done = [0] * len(parts)
    try:
        number = 0
        while (entry := next(entries[number % len(parts)], None)) is not None:
            assert entry.window == number
            rank = number % len(parts)
            _copy(descriptors[rank], target, entry.bytes - done[rank])
            done[rank] = entry.bytes
            number += 1
        assert all(next(rest, None) is None for rest in entries)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _copy(source: int, target: FileIO, size: int) -> None:
    while size:
        block = os.read(source, min(size, _BLOCK))
        assert block, "a part is shorter than its journal says"
        write_all(target.fileno(), block, target.name)
        size -= len(block)
