"""Output files that an interrupted command can resume, also if several processes write parts of them.

An unfinished `output` is named `output.partial` (`output.partial-2of3` for the second of three processes). Its journal,
`output.partial.journal`, has a line with the settings, then one for each window that is on the disk.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec

from rskip.files.lock import one_at_a_time
from rskip.files.names import line_name
from rskip.files.state import read_state_lines, state_line
from rskip.files.windows import Window
from rskip.settings.differences import differences
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Index

_JOURNAL = ".journal"


class OtherInputError(ValueError):
    """Raised if an earlier run had another input."""


class StoppedError(Exception):
    """Raised if writing a `ResumableFile` stopped after some work, which can be resumed.

    cause: the error or interrupt. lines: input lines that are done. path: the file with their output.
    """

    def __init__(self, cause: BaseException, lines: int, path: Path) -> None:
        super().__init__(f"{cause}; the first {lines:,} lines are in {path}")
        self.cause, self.lines, self.path = cause, lines, path


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A written window.

    window: its number.
    lines: lines of all inputs up to its end.
    bytes: bytes of the output up to its end.
    sha256: checksum of all inputs up to its end.
    """

    window: Index
    lines: Count
    bytes: Index
    sha256: str


class ResumableFile:
    """A file whose windows reach the disk when they are written, so that they survive any end of the process.

    It has the name `path` and a journal next to it. Only one process at a time may write it. It is a context manager.
    If it holds a window, KeyboardInterrupt, OSError and ValueError, except `OtherInputError`, become a `StoppedError`.
    After an error before the first window it removes its files.

    :param path: the file; see `part_path`.
    :param settings: everything that determines the content, for JSON. If a value has the keys `path` and `sha256`, only
        its checksum must stay the same.
    :param resume: resume an existing file; otherwise it must not exist.
    :raises ValueError: another process writes the file; it exists and `resume` is False; or it was made with other
        settings.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self._journal = _journal(path)
        with ExitStack() as closing:
            closing.enter_context(one_at_a_time(path, wait=False))
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            closing.callback(os.close, self._descriptor)
            self._last = self._restore(json.loads(state_line(dict(settings))), resume)
            self._closing = closing.pop_all()

    @property
    def lines(self) -> int:
        """Input lines up to the end of the last window that is kept."""
        return self._last.lines if self._last else 0

    def missing(self, windows: Iterable[Window]) -> Iterator[Window]:
        """Yields the windows after the last one that is kept.

        :raises OtherInputError: the windows up to there differ from those of the earlier run.
        """
        last, found = self._last, self._last is None
        for window in windows:
            if last is None or window.number > last.window:
                self._check_input(found)
                yield window
            else:
                found = window.sha256 == last.sha256
        self._check_input(found)

    def write(self, window: Window, text: bytes) -> None:
        """Adds the output of a window. An incomplete window is written, but a resumed run repeats it."""
        write_all(self._descriptor, text, self.path)
        if not window.whole:
            return
        os.fsync(self._descriptor)
        written = (self._last.bytes if self._last else 0) + len(text)
        end = window.start + len(window.lines)
        self._last = Entry(window=window.number, lines=end, bytes=written, sha256=window.sha256)
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(state_line(self._last))

    def finish(self, output: Path) -> None:
        """Renames the complete file to its final name."""
        self.path.replace(output)
        self._journal.unlink()

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> ResumableFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._closing, suppress(FileNotFoundError):
            if error is not None and not self.lines:
                self.path.unlink()
                self._journal.unlink()
        stopped = isinstance(error, (KeyboardInterrupt, ValueError, OSError)) and not isinstance(error, OtherInputError)
        if error is not None and stopped and self.lines:
            raise StoppedError(error, self.lines, self.path) from error

    def _restore(self, settings: dict[str, Any], resume: bool) -> Entry | None:
        size = os.fstat(self._descriptor).st_size
        if not size:
            self._journal.write_text(state_line(settings), encoding="utf-8")
            return None
        if not resume:
            raise _unfinished(self.path)
        if not self._journal.exists():
            raise ValueError(f"{self.path} can't be resumed, {self._journal.name} is missing: delete {self.path}")
        before, last, end = None, None, 0
        for entry, position in _written(self.path):
            if not isinstance(entry, Entry):
                before, end = entry, position
            elif entry.bytes <= size:
                last, end = entry, position
        if changes := differences(before or {}, settings):
            raise ValueError(
                f"{self.path} was started with other settings ({'; '.join(changes)}): use the same settings to resume, "
                f"or delete {self.path} to start again"
            )
        os.truncate(self._journal, end)
        os.truncate(self.path, written := last.bytes if last else 0)
        os.lseek(self._descriptor, written, os.SEEK_SET)
        return last

    def _check_input(self, found: bool) -> None:
        if not found:
            raise OtherInputError(
                f"{self.path} was made from another input: the first {self.lines:,} lines differ; use the same "
                f"input to resume, or delete {self.path} to start again"
            )


def part_path(output: Path, part: int = 0, parts: int = 1) -> Path:
    """The file to write until `output` is complete: its only part, or part `part` (from 0) of several."""
    return output.with_name(f"{output.name}.partial" + (f"-{part + 1}of{parts}" if parts > 1 else ""))


def complete(output: Path) -> str:
    """A line for the user about an output that exists. Its journal is gone, so nothing can be compared."""
    return (
        f"{line_name(output)} exists and was not checked against this input or these settings: delete it to start again"
    )


def unfinished_parts(output: Path) -> list[Path]:
    """The unfinished parts of `output` that interrupted runs left, if they hold a line."""
    parts = output.parent.glob(f"{glob.escape(output.name)}.partial*")
    left = [path for path in parts if not path.name.endswith((_JOURNAL, "-merged"))]
    return sorted(path for path in left if path.stat().st_size)


def how_to_resume(outputs: Iterable[Path]) -> str:
    """What to say if a command stops before it continues one of the outputs; "" if interrupted runs left nothing."""
    left = [part for output in outputs for part in unfinished_parts(output)]
    return f"finished work is in {left[0]}: --resume continues from there" if left else ""


def check_unfinished(output: Path, part: int, parts: int, *, resume: bool) -> None:
    """Checks before any work for the errors of `ResumableFile`, and for parts of another number of processes.

    :param part: the part of this process, from 0.
    :raises ValueError: the output can't be written or resumed.
    """
    names = [part_path(output, number, parts).name for number in range(parts)]
    for path in unfinished_parts(output):
        if path.name not in names:
            raise ValueError(
                f"{path} was started with another number of processes than {parts}: use the earlier number to resume, "
                "or delete it"
            )
        if path.name == names[part]:
            with one_at_a_time(path, wait=False):
                pass
        if not resume:
            raise _unfinished(path)


def merge_parts(output: Path, count: int) -> None:
    """Merges the parts of `count` processes into the output, window by window, and removes the parts.

    :raises ValueError: a part is missing.
    """
    parts = [part_path(output, number, count) for number in range(count)]
    for part in parts:
        if not (part.exists() and _journal(part).exists()):
            raise ValueError(
                f"{part} is missing: all processes must write to one folder; when the file is there, resume the run"
            )
    merged = output.with_name(f"{output.name}.partial-merged")
    with ExitStack() as opened:
        target = opened.enter_context(merged.open("wb"))
        files = [opened.enter_context(part.open("rb")) for part in parts]
        entries = [(entry for entry, _ in _written(part) if isinstance(entry, Entry)) for part in parts]
        number = 0
        while (entry := next(entries[number % count], None)) is not None:
            file = files[number % count]
            target.write(file.read(entry.bytes - file.tell()))
            number += 1
        target.flush()
        os.fsync(target.fileno())
    merged.replace(output)
    for part in parts:
        part.unlink()
        _journal(part).unlink()


def write_all(descriptor: int, data: bytes, name: str | os.PathLike[str]) -> None:
    """Writes all bytes without a buffer, which would keep the unwritten rest after an error.

    :raises OSError: the bytes could not be written. Names the file `name`.
    """
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(name)) from error


def _unfinished(path: Path) -> SettingError:
    left = f"{path} is left from an interrupted run"
    return SettingError("", left, instead="resume", advice="or delete that file to start again")


def _journal(output: Path) -> Path:
    return output.with_name(f"{output.name}{_JOURNAL}")


def _written(output: Path) -> Iterator[tuple[Any, int]]:
    """The lines of an output's journal, and the bytes up to their end. A torn line at its end is left out."""
    return read_state_lines(_journal(output), Entry, advice=f"delete {output} to start again", head=dict[str, Any])
