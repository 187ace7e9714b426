"""Journals: what a process that may be killed has on the disk, entry by entry."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


class Journal:
    """A file of JSON lines: first the settings of the work, then an entry for each part that is on the disk.

    A process that is killed leaves at most a torn last line, which readers leave out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> dict[str, Any] | None:
        """What the work is done with; None where there is no journal, or only the beginning of its first line."""
        values = next(self._values(), None)
        return None if values is None else values[0]

    def entries(self) -> Iterator[dict[str, Any]]:
        """The entries, in the order in which they were added."""
        return (entry for entry, _ in self._entries())

    def restart(self, settings: Mapping[str, Any]) -> None:
        """Holds the settings alone."""
        self.path.write_text(_line(settings), encoding="utf-8")

    def add(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Adds entries of what has reached the disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(map(_line, entries)))

    def keep_while(self, kept: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Forgets the entries from the first one on that is not `kept`, and gives the last that stays."""
        last, end = None, next(self._values())[1]
        for entry, position in self._entries():
            if not kept(entry):
                break
            last, end = entry, position
        os.truncate(self.path, end)
        return last

    def _entries(self) -> Iterator[tuple[dict[str, Any], int]]:
        values = self._values()
        next(values, None)
        yield from values

    def _values(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Each line's values, and where it ends. Raises `ValueError` for a whole line that is no entry."""
        if not self.path.exists():
            return
        end = 0
        with self.path.open("rb") as file:
            for line in file:
                end += len(line)
                try:
                    values = json.loads(line) if line.endswith(b"\n") else None
                except (ValueError, RecursionError):  # such as zeros, after a power cut
                    values = None
                if values is None:
                    return
                if not isinstance(values, dict):
                    raise ValueError(f"{self.path} is damaged: a line holds a {type(values).__name__}, no entry")
                yield values, end


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"
