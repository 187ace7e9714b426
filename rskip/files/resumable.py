"""Output files that an interrupted command can resume, also if several processes write parts of them.

An unfinished `output` is named `output.partial` (`output.partial-2of3` for the second of three processes). A journal
beside it records its settings and its progress. A window in progress also has a journal of its finished batches,
`output.partial.window7`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from rskip.files.journal import Journal
from rskip.files.lock import Locked, one_at_a_time
from rskip.files.names import line_name
from rskip.files.windows import Window
from rskip.settings.differences import differences
from rskip.settings.errors import SettingError
from rskip.settings.kinds import Count, Index

_BLOCK = 1 << 20
_WINDOW = ".window"

BatchT = TypeVar("BatchT")


class OtherInputError(ValueError):
    """Raised if an earlier run had another input."""


class StoppedError(Exception):
    """Raised if writing a `ResumableFile` stopped after some work, which can be resumed.

    cause: the error or interrupt. lines: input lines that are done; batches of later lines may be done too. path: the
    file with their output.
    """

    def __init__(self, cause: BaseException, lines: int, path: Path) -> None:
        super().__init__(f"{cause}; finished work, at least the first {lines:,} lines, is in {path}")
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
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class ResumableFile:
    """A file whose windows reach the disk when they are written, so that they survive any end of the process.

    It has the name `path` and a journal next to it. Only one process at a time may write it. It is a context manager,
    which closes the file. If finished work is kept, KeyboardInterrupt, OSError and ValueError, except
    `OtherInputError`, become a `StoppedError`.
    After an error without any finished work it removes its files.

    :param path: the file; see `part_path`.
    :param settings: everything that determines the content, for JSON. If a value has the keys `path` and `sha256`, only
        its checksum must stay the same.
    :param resume: resume an existing file; otherwise it must not exist.
    :param note: called with a line for the user if work of an earlier run can't be used.
    :raises ValueError: another process writes the file; it exists and `resume` is False; or it was made with other
        settings.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], *, resume: bool, note: Callable[[str], None] = lambda line: None
    ) -> None:
        self.path = path
        self.journal = _journal(path)
        self._settings: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        self._note = note
        resume = resume and path.exists()  # after an error the user may have deleted only this file
        self._closing = ExitStack()
        self._closing.enter_context(_alone(path))
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._closing.callback(os.close, self._descriptor)
        try:
            if not resume:
                for journal in _window_journals(path):
                    journal.unlink()
            self._last = self._restore(self._settings, resume)
            for journal in _window_journals(path):  # a process killed right after writing a window leaves its journal
                number = journal.name.rpartition(_WINDOW)[2]
                if self._last and number.isdecimal() and int(number) <= self._last.window:
                    journal.unlink()
        except BaseException:
            self._closing.close()
            raise

    @property
    def lines(self) -> int:
        """Input lines up to the end of the last window that is kept."""
        return self._last.lines if self._last else 0

    def missing(self, windows: Iterable[Window]) -> Iterator[Window]:
        """Yields the windows after the last one that is kept.

        :raises OtherInputError: the windows up to there differ from the translated ones, or the input is empty although
            batches are kept.
        """
        last = self._last
        found, empty, end = last is None, True, 0
        for window in windows:
            empty, end = False, window.start + len(window.lines)
            if last is None or window.number > last.window:
                self._check_input(found)
                yield window
            elif window.number == last.window:
                found = window.sha256 == last.sha256 and window.whole
        if not found and end < self.lines:
            raise self._other_input(f"it now ends before line {self.lines:,}")
        self._check_input(found)
        if empty and any(map(_has_batches, _window_journals(self.path))):
            raise self._other_input("the input is empty now")

    def write(self, window: Window, text: bytes) -> None:
        """Adds the output of a window. An incomplete window is written, but a resumed run translates it again."""
        write_all(self._descriptor, text, self.path)
        if not window.whole:
            return
        os.fsync(self._descriptor)
        written = (self._last.bytes if self._last else 0) + len(text)
        end = window.start + len(window.lines)
        entry = Entry(window=window.number, lines=end, bytes=written, sha256=window.sha256)
        self.journal.add([entry])
        self._last = entry
        self._window_path(window).unlink(missing_ok=True)

    def batches(self, window: Window, kind: type[BatchT]) -> Journal[BatchT]:
        """The journal of a window's batches, with those of an earlier run of the same lines.

        :param kind: the type of an entry, a batch.
        :raises OtherInputError: no window is kept, and the batches are of another file or of more lines.
        """
        journal = _batch_journal(path := self._window_path(window), kind)
        lines = len(window.lines)
        of = {"sha256": window.sha256, "settings": self._settings, "name": window.name, "lines": lines}
        before = journal.settings()
        settings = before.get("settings") if before else None
        same = isinstance(settings, Mapping) and not differences(settings, self._settings)
        if before and before.get("sha256") == window.sha256 and same:
            journal.keep_while(lambda entry: True)
            return journal
        if before and same and _has_batches(path):
            name, most = before.get("name"), before.get("lines")
            if self._last is None and name not in (None, window.name):
                raise self._other_input(f"{name}, now {window.name}")
            if self._last is None and isinstance(most, int) and lines < most:
                raise self._other_input(f"{name} had {most:,} lines or more, now {lines:,}")
            changed = f"lines {window.start + 1:,} to {window.start + lines:,} of the input"
            self._note(f"{self.path}: {changed} have changed since the interrupted run: they are translated again")
        journal.restart(of)
        return journal

    def _window_path(self, window: Window) -> Path:
        return self.path.with_name(f"{self.path.name}{_WINDOW}{window.number}")

    def finish(self, output: Path) -> None:
        """Renames the complete file to its final name."""
        self.path.replace(output)
        for journal in (self.journal.path, *_window_journals(self.path)):
            journal.unlink(missing_ok=True)

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> ResumableFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        kept = bool(self.lines)
        try:
            if error is not None:
                with suppress(OSError):  # such as a removed folder
                    journals = _window_journals(self.path)
                    kept = kept or any(map(_has_batches, journals))
                    if not kept and not os.fstat(self._descriptor).st_size:
                        for path in (self.path, self.journal.path, *journals):
                            path.unlink(missing_ok=True)
        finally:
            self.close()
        stopped = isinstance(error, (KeyboardInterrupt, ValueError, OSError)) and not isinstance(error, OtherInputError)
        if error is not None and stopped and kept:
            raise StoppedError(error, self.lines, self.path) from error

    def _restore(self, settings: dict[str, Any], resume: bool) -> Entry | None:
        size = os.fstat(self._descriptor).st_size
        before = self.journal.settings() if resume else None
        if not size and (before is None or not any(map(_has_batches, _window_journals(self.path)))):
            if before is not None:
                self._note(f"{self.path}: the interrupted run finished nothing, so this one starts again")
            self.journal.restart(settings)
            return None
        if not resume:
            raise _unfinished(self.path)
        if before is None:
            raise ValueError(f"{self.path} can't be resumed, {self.journal.path.name} is missing: delete {self.path}")
        if changes := differences(before, settings):
            raise ValueError(
                f"{self.path} was started with other settings ({'; '.join(changes)}): use the same settings to resume, "
                f"or delete {self.path} to start again"
            )
        list(written_windows(self.path))  # raises an error if entries contradict each other
        last = self.journal.keep_while(lambda entry: entry.bytes <= size)
        end = last.bytes if last else 0
        if end and os.pread(self._descriptor, 1, end - 1) != b"\n":
            raise self.journal.damage("bytes", f"is {end}, inside a line", expected="the end of a line")
        os.truncate(self._descriptor, end)
        os.lseek(self._descriptor, end, os.SEEK_SET)
        return last

    def _check_input(self, found: bool) -> None:
        if not found:
            raise self._other_input(f"the first {self.lines:,} lines differ")

    def _other_input(self, difference: str) -> OtherInputError:
        return OtherInputError(
            f"{self.path} was made from another input: {difference}; use the same input to resume, or delete "
            f"{self.path} to start again"
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
    """The unfinished parts of `output` that interrupted runs left, if they hold a line or a batch."""
    if not output.parent.is_dir():
        return []
    found = [
        path
        for path in output.parent.iterdir()
        if path.name.startswith(f"{output.name}.partial")
        and not path.name.endswith((".journal", "-merged"))
        and _WINDOW not in path.name.removeprefix(output.name)
    ]
    return sorted(path for path in found if path.stat().st_size or any(map(_has_batches, _window_journals(path))))


def how_to_resume(outputs: Iterable[Path]) -> str:
    """What to say if a command stops before it continues one of the outputs; "" if interrupted runs left nothing."""
    left = [part for output in outputs for part in unfinished_parts(output)]
    return f"finished work is in {left[0]}: --resume continues from there" if left else ""


def _window_journals(part: Path) -> list[Path]:
    """The journals of windows of a part, of which some batches may be done."""
    return sorted(path for path in part.parent.iterdir() if path.name.startswith(f"{part.name}{_WINDOW}"))


def _has_batches(journal: Path) -> bool:
    try:
        return next(_batch_journal(journal, dict[str, Any]).entries(), None) is not None
    except SettingError:  # intact entries follow the damage
        return True


def check_unfinished(output: Path, part: int, parts: int, *, resume: bool) -> None:
    """Checks before any work for the errors of `ResumableFile`, and for parts of another number of processes.

    :param part: the part of this process, from 0.
    :raises ValueError: the output can't be written or resumed.
    """
    own = {part_path(output, number, parts).name for number in range(parts)}
    for path in unfinished_parts(output):
        if path.name not in own:
            raise ValueError(
                f"{path} was started with another number of processes than {parts}: use the earlier number to resume, "
                "or delete it"
            )
        if path.name == part_path(output, part, parts).name:
            with _alone(path):
                pass
        if not resume:
            raise _unfinished(path)


def _unfinished(path: Path) -> SettingError:
    left = f"{path} is left from an interrupted run"
    return SettingError("", left, instead="resume", advice="or delete that file to start again")


def merge_parts(output: Path, count: int) -> None:
    """Merges the parts of `count` processes into the output, window by window, and removes the parts.

    :raises ValueError: a part is missing, or its journal is damaged.
    """
    parts = [part_path(output, number, count) for number in range(count)]
    journals = [_journal(part) for part in parts]
    for part, journal in zip(parts, journals, strict=True):
        if not (part.exists() and journal.path.exists()):
            raise ValueError(
                f"{part} is missing: all processes must write to one folder; when the file is there, resume the run"
            )
    merged = output.with_name(f"{output.name}.partial-merged")
    try:
        with merged.open("wb", buffering=0) as file:
            _copy_in_turns(parts, [written_windows(part) for part in parts], file)
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
            part = number % len(parts)
            if entry.window != number:
                raise _journal(parts[part]).damage("window", f"is {entry.window}", expected=str(number))
            _copy(descriptors[part], target, entry.bytes - done[part])
            done[part] = entry.bytes
            number += 1
        for path, rest in zip(parts, entries, strict=True):
            if (entry := next(rest, None)) is not None:
                raise _journal(path).damage("window", f"is {entry.window}", expected=f"{number}, which is missing")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _copy(source: int, target: FileIO, size: int) -> None:
    while size:
        block = os.read(source, min(size, _BLOCK))
        if not block:
            raise ValueError(f"a part of {target.name} is shorter than its journal says: delete it to start again")
        write_all(target.fileno(), block, target.name)
        size -= len(block)


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


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lets only this process write the file."""
    try:
        with one_at_a_time(path, wait=False):
            yield
    except Locked:
        raise ValueError(f"another process is writing {path}: wait until it ends, or choose another output") from None


def written_windows(output: Path) -> Iterator[Entry]:
    """The windows of an unfinished output, in the order of writing."""
    journal = _journal(output)
    before = Entry(window=-1, lines=0, bytes=0, sha256="")
    for entry in journal.entries():
        for name in ("window", "lines", "bytes"):
            if (now := getattr(entry, name)) < (least := getattr(before, name)):
                raise journal.damage(name, f"is {now}", expected=f"{least} or more, as in the line before")
        before = entry
        yield entry


def _journal(output: Path) -> Journal[Entry]:
    """The journal next to an unfinished output: its settings, then one `Entry` per window."""
    return Journal(output.with_name(f"{output.name}.journal"), Entry, advice=f"delete {output} to start again")


def _batch_journal(path: Path, kind: type[BatchT]) -> Journal[BatchT]:
    """The journal of a window: the output's settings and the window's checksum, then one entry per batch."""
    return Journal(path, kind, advice="delete it to translate the window again")
