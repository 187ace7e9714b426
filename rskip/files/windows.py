"""Reads text files in windows of lines, so that only one window is in memory."""

from __future__ import annotations

import hashlib
import os
import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rskip.files.text_lines import decoded_line

STANDARD_INPUT = "-"
LONGEST_LINE = 10_000_000  # bytes; a longer line is not text
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Window:
    """Consecutive lines of one input, without their ends.

    number: number of the window over all inputs, from 0.
    name: name of the input, for messages.
    first_line: number of its first line in the input, from 1.
    start: number of lines of all inputs before this window.
    size, position: bytes of this window, and of all inputs up to its end.
    sha256: checksum of all inputs up to its end.
    whole: False if the line after it is damaged; the window would be longer without the damage.
    """

    number: int
    name: str
    first_line: int
    start: int
    lines: tuple[str, ...]
    size: int
    position: int
    sha256: str
    whole: bool = True


def read_windows(
    inputs: Sequence[str | os.PathLike[str]], *, lines: int, characters: int, wait: float | None = None
) -> Iterator[Window]:
    """Yields all lines of files in windows, which end with their file or at a limit of lines or characters.

    A line ends with a line feed, which may follow a carriage return and may be missing from the last line. A byte order
    mark at the beginning of a file is dropped.

    :param inputs: files; "-" is standard input.
    :param wait: a window also ends if no more input arrives for so many seconds; None: never, so that the windows
        depend only on the input.
    :raises ValueError: a line is not UTF-8 or has more than 10 million bytes. Names the input and the line. The lines
        before it are yielded first.
    """
    reader = _WindowReader(lines, characters)
    for path in inputs:
        yield from reader.read(path, wait)


class _WindowReader:
    def __init__(self, lines: int, characters: int) -> None:
        self._most_lines, self._most_characters = lines, characters
        self._number = self._start = self._position = 0
        self._digest = hashlib.sha256()

    def read(self, path: str | os.PathLike[str], wait: float | None) -> Iterator[Window]:
        name = input_name(path)
        lines: list[str] = []
        characters = size = 0
        first_line = 1
        try:
            with _opened(path) as descriptor:
                for raw in raw_lines(descriptor, wait=wait):
                    if raw is not None:
                        line = _decoded(raw, name, first_line + len(lines))
                        lines.append(line)
                        characters += len(line)
                        size += len(raw)
                        self._digest.update(raw)
                    full = len(lines) >= self._most_lines or characters >= self._most_characters
                    if full or (raw is None and lines):
                        yield self._window(name, first_line, lines, size)
                        first_line += len(lines)
                        lines, characters, size = [], 0, 0
        except ValueError:
            if lines:
                yield self._window(name, first_line, lines, size, whole=False)
            raise
        if lines:
            yield self._window(name, first_line, lines, size)

    def _window(self, name: str, first_line: int, lines: list[str], size: int, *, whole: bool = True) -> Window:
        self._position += size
        window = Window(
            number=self._number,
            name=name,
            first_line=first_line,
            start=self._start,
            lines=tuple(lines),
            size=size,
            position=self._position,
            sha256=self._digest.hexdigest(),
            whole=whole,
        )
        self._number += 1
        self._start += len(lines)
        return window


def input_name(path: str | os.PathLike[str]) -> str:
    """The name of an input in messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def raw_lines(descriptor: int, *, wait: float | None) -> Iterator[bytes | None]:
    """Yields lines of an open file with their ends, and None each time that nothing arrives for `wait` seconds.

    A line longer than `LONGEST_LINE` is truncated.
    """
    rest = b""
    while True:
        if wait is not None and not select.select([descriptor], [], [], wait)[0]:
            yield None
        block = os.read(descriptor, _BLOCK)
        if not block:
            break
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > LONGEST_LINE:
            break
    if rest:
        yield rest


def _decoded(raw: bytes, name: str, number: int) -> str:
    if len(raw) > LONGEST_LINE:
        raise ValueError(
            f"{name}: line {number} has more than {LONGEST_LINE:,} bytes: expected text, one sentence per line"
        )
    return decoded_line(raw, number, name)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[int]:
    if path == STANDARD_INPUT:
        yield 0
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
