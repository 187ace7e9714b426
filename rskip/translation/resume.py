"""An output file that an interrupted translation can go on with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rskip.files.lock import Locked, open_locked
from rskip.translation.journal import Entry, Journal
from rskip.translation.lines import Window

_UNFINISHED = "{} is what an unfinished translation left: go on with it (--resume), or delete it to begin anew"


def part_name(name: str, part: int = 0, parts: int = 1) -> str:
    """The name of the file that is written until `name` is whole: the one part, or part `part` of several, from 0."""
    return f"{name}.partial" if parts == 1 else f"{name}.partial-{part + 1}of{parts}"


def check_unfinished(output: Path, part: int, parts: int, *, resume: bool) -> None:
    """Refuses before any work what `ResumableFile` would refuse, and parts of another number of processes.

    :param part: this process's, from 0.

    :raises ValueError: it is refused.
    """
    own = {part_name(output.name, number, parts) for number in range(parts)}
    for path in unfinished_parts(output):
        if path.name not in own:
            raise ValueError(
                f"{path} was begun by another number of processes, and this is {parts}: go on (--resume) with as many "
                "as there were, or delete it"
            )
        if path.name == part_name(output.name, part, parts):
            os.close(_open_locked(path))
        if not resume:
            raise ValueError(_UNFINISHED.format(path))


def unfinished_parts(output: Path) -> list[Path]:
    """What unfinished translations have left of `output`; none that are empty."""
    if not output.parent.is_dir():
        return []
    found = [
        path
        for path in output.parent.iterdir()
        if path.name.startswith(f"{output.name}.partial") and not path.name.endswith((".journal", "-merged"))
    ]
    return sorted(path for path in found if path.stat().st_size)


class OtherInputError(ValueError):
    """What was translated before was another input."""


class ResumableFile:
    """A file whose windows are on the disk when they are written, so that whatever ends the process, they stay.

    It is written under the name of `path` and, beside it, a journal. One process at a time may do so.

    :param path: what is written, usually `<output>.partial`.
    :param settings: all that decides what is written, for JSON.
    :param resume: go on with what is there; otherwise it must not be there.
    :raises ValueError: another process writes it; it is there and `resume` is not given, or it was made with other
        settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self.journal = Journal(path.with_name(f"{path.name}.journal"))
        self._descriptor = _open_locked(path)
        try:
            self._last = self._begin(settings, resume)
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def lines(self) -> int:
        """Lines of the inputs up to the end of the last window that is kept."""
        return self._last.lines if self._last else 0

    @property
    def _size(self) -> int:
        return self._last.bytes if self._last else 0

    def missing(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The windows behind the last one that is kept.

        :raises OtherInputError: the windows up to there are not those that were translated.
        """
        last = self._last
        found = last is None
        for window in windows:
            if last is None or window.number > last.window:
                self._check_input(found)
                yield window
            elif window.number == last.window:
                found = window.sha256 == last.sha256 and window.whole
        self._check_input(found)

    def write(self, window: Window, text: bytes) -> None:
        """Adds a window's output. A window that is not whole is written, but not kept when the translation goes on."""
        write_all(self._descriptor, text, self.path)
        if not window.whole:
            return
        os.fsync(self._descriptor)
        end = window.start + len(window.lines)
        entry = Entry(window=window.number, lines=end, bytes=self._size + len(text), sha256=window.sha256)
        self.journal.add(entry)
        self._last = entry

    def finish(self, output: Path) -> None:
        """Gives the file its name."""
        self.path.replace(output)
        self.journal.path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._descriptor)

    def _begin(self, settings: Mapping[str, Any], resume: bool) -> Entry | None:
        size = os.fstat(self._descriptor).st_size
        if size and not resume:
            raise ValueError(_UNFINISHED.format(self.path))
        settings = dict(settings)
        before = self.journal.settings()
        if not size:
            self.journal.begin(settings)
            return None
        if before is None:
            raise ValueError(f"{self.path} can't be gone on with, {self.journal.path.name} is missing: delete it")
        self._check_settings(before, settings)
        last = self.journal.go_back(size)
        end = last.bytes if last else 0
        os.truncate(self._descriptor, end)
        os.lseek(self._descriptor, end, os.SEEK_SET)
        return last

    def _check_settings(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        differing = [
            f"{name}: {before.get(name)}, now {now.get(name)}"
            for name in {**before, **now}
            if before.get(name) != now.get(name)
        ]
        if differing:
            raise ValueError(
                f"{self.path} was begun with other settings ({'; '.join(differing)}): give the same, or delete it to "
                "begin anew"
            )

    def _check_input(self, found: bool) -> None:
        if not found:
            raise OtherInputError(
                f"{self.path} was made of another input: the first {self.lines:,} lines are not what they were. Give "
                "the same input, or delete it to begin anew"
            )


def write_all(descriptor: int, data: bytes, name: str | os.PathLike[str]) -> None:
    """Writes all of it, without a buffer that would hold the rest of what could not be written.

    :raises OSError: it could not be written, `name` being the file's.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(name)) from error


def _open_locked(path: Path) -> int:
    """Opens the file for this process alone, for as long as it lives."""
    try:
        return open_locked(path)
    except Locked:
        raise ValueError(f"another process is writing {path}: wait until it ends, or give another output") from None
