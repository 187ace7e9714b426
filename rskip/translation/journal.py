"""A record beside an unfinished output: how it is made, and how far it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A window that is written.

    window: its number.
    lines: of all inputs, up to its end.
    bytes: of the output, up to its end.
    sha256: of all inputs, up to its end.
    """

    window: int
    lines: int
    bytes: int
    sha256: str


class Journal:
    """A file of JSON lines: first the settings, then an `Entry` for each window, added when the window is on the disk.

    A process that is killed leaves at most a torn last line, which readers leave out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def settings(self) -> dict[str, Any] | None:
        """What the output is made with; None where there is no journal, or only the beginning of its first line."""
        values = next(self._values(), None)
        return None if values is None else values[0]

    def entries(self) -> Iterator[Entry]:
        """The windows, in the order in which they were written."""
        for entry, _ in self._entries():
            yield entry

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Starts anew."""
        with self.path.open("w", encoding="utf-8") as file:
            file.write(_line(settings))

    def add(self, entry: Entry) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(asdict(entry)))

    def go_back(self, size: int) -> Entry | None:
        """Forgets what is behind the last window that an output of `size` bytes has whole, and gives this one."""
        last, end = None, next(self._values())[1]
        for entry, position in self._entries():
            if entry.bytes > size:
                break
            last, end = entry, position
        os.truncate(self.path, end)
        return last

    def _entries(self) -> Iterator[tuple[Entry, int]]:
        values = self._values()
        next(values, None)
        for each, end in values:
            yield Entry(**each), end

    def _values(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Each line's values, and where it ends."""
        if not self.path.exists():
            return
        end = 0
        with self.path.open("rb") as file:
            for line in file:
                end += len(line)
                try:
                    values = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:  # zeros, after a power cut
                    values = None
                if values is None:
                    return
                yield values, end


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"
