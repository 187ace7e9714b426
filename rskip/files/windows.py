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
    number = start = position = 0
    digest = hashlib.sha256()
    for path in inputs:
        name, first_line = input_name(path), 1
        for texts, raw, error in _blocks(path, name, lines, characters, wait):
            digest.update(raw)
            position += len(raw)
            yield Window(
                number=number,
                name=name,
                first_line=first_line,
                start=start,
                lines=tuple(texts),
                size=len(raw),
                position=position,
                sha256=digest.hexdigest(),
                whole=error is None,
            )
            if error is not None:
                raise error
            number, start, first_line = number + 1, start + len(texts), first_line + len(texts)


def _blocks(
    path: str | os.PathLike[str], name: str, most_lines: int, most_characters: int, wait: float | None
) -> Iterator[tuple[list[str], bytes, ValueError | None]]:
    """The lines of each window and their bytes, and for the last one the error of the line after it."""
    texts: list[str] = []
    raw: list[bytes] = []
    number, characters, damage = 0, 0, None
    try:
        with _opened(path) as descriptor:
            for line in _raw_lines(descriptor, wait):
                if line is not None:
                    number += 1
                    texts.append(_decoded(line, name, number))
                    raw.append(line)
                    characters += len(texts[-1])
                full = len(texts) >= most_lines or characters >= most_characters
                if full or (line is None and texts):
                    yield texts, b"".join(raw), None
                    texts, raw, characters = [], [], 0
    except ValueError as error:
        if not texts:
            raise
        damage = error
    if texts:
        yield texts, b"".join(raw), damage


def input_name(path: str | os.PathLike[str]) -> str:
    """The name of an input in messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def _raw_lines(descriptor: int, wait: float | None) -> Iterator[bytes | None]:
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
