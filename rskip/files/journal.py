"""Journals record the finished work of a process that may be killed, entry by entry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from rskip.files.state import read_state_lines, state_line
from rskip.settings.errors import SettingError

Entry = TypeVar("Entry")


class Journal(Generic[Entry]):
    """A file of JSON lines: first the settings of the work, then one entry per part that is on the disk.

    A killed process damages at most the end of the file. Readers skip a damaged end and refuse other damage.

    :param kind: the entries' type, a Struct or a dataclass.
    :param settings: the settings' type.
    :param advice: what to do about a damaged journal.
    """

    def __init__(self, path: Path, kind: type[Entry], *, advice: str, settings: Any = dict[str, Any]) -> None:
        self.path, self._kind, self._advice, self._settings = path, kind, advice, settings

    def settings(self, *, finished: bool = False) -> dict[str, Any] | None:
        """The settings of the work; None if the journal is missing or holds only part of its first line.

        :param finished: whether the journal was complete; then a damaged first line is an error.
        :raises SettingError: the first line is damaged, and an intact line follows.
        """
        settings, _ = next(self._lines(finished=finished), (None, 0))
        return settings

    def entries(self, *, finished: bool = False) -> Iterator[Entry]:
        """The entries, in the order in which they were added.

        :param finished: whether the journal was complete; then a damaged end is an error.
        :raises SettingError: a line is not an entry, and an intact line follows. Names the journal, line and key.
        """
        return (entry for entry, _ in self._entries(finished=finished))

    def damage(self, name: str, problem: str, *, expected: str) -> SettingError:
        """An error for entries that contradict each other; see `SettingError`."""
        return SettingError(name, problem, expected=expected, advice=self._advice, source=str(self.path))

    def restart(self, settings: Mapping[str, Any]) -> None:
        """Starts the journal with only the settings."""
        self.path.write_text(state_line(settings), encoding="utf-8")

    def add(self, entries: Iterable[Entry]) -> None:
        """Adds entries for parts that have reached the disk."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(map(state_line, entries)))

    def keep_while(self, kept: Callable[[Entry], bool]) -> Entry | None:
        """Removes the entries from the first one that is not `kept`, and returns the last remaining one."""
        last, (_, end) = None, next(self._lines())
        for entry, position in self._entries():
            if not kept(entry):
                break
            last, end = entry, position
        os.truncate(self.path, end)
        return last

    def _entries(self, *, finished: bool = False) -> Iterator[tuple[Entry, int]]:
        lines = self._lines(finished=finished)
        next(lines, None)
        yield from lines

    def _lines(self, *, finished: bool = False) -> Iterator[tuple[Any, int]]:
        if self.path.exists():
            yield from read_state_lines(
                self.path, self._kind, advice=self._advice, head=self._settings, finished=finished
            )
