"""Makes fairseq end lines only at line feeds, and drop a byte order mark at the beginning of a text.

fairseq opens text in Python's text mode, where a carriage return also ends a line. A sentence that contains one
becomes two, so all later sentences get the wrong partner, and the parts of several workers overlap. With this patch
only a line feed, or a carriage return and a line feed, ends a line.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch


class NotText(UsageError, UnicodeError):
    """A text is not in UTF-8."""


class TextLines:
    """The lines of a UTF-8 text, each with a line feed at its end. Used in place of an open file.

    :param path: a file, or "-" for standard input.
    :param start: byte at which the first line begins.
    :param end: byte before which the last line begins; 0 or less: the end of the file.
    """

    def __init__(self, path: str, start: int = 0, end: int = 0) -> None:
        standard = path == "-"
        self._file = open(0 if standard else path, "rb", closefd=not standard)  # noqa: SIM115 - __exit__ closes it
        self._name = "standard input" if standard else path
        self._position, self._end, self._lines = start, end, 0
        self._from_the_start = start == 0
        if start:
            self._file.seek(start)

    def __enter__(self) -> TextLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._file.readline() if self._end <= 0 or self._position < self._end else b""
        if not raw:
            raise StopIteration
        first = self._position == 0
        self._position += len(raw)
        self._lines += 1
        if self._from_the_start and self._lines <= 2 and _is_utf16(raw, first):
            raise self._not_text("UTF-16")
        try:
            text = raw.removeprefix(codecs.BOM_UTF8 if first else b"").decode("utf-8")
        except UnicodeDecodeError:
            raise self._not_text("bytes that are not UTF-8") from None
        return text[:-2] + "\n" if text.endswith("\r\n") else text

    def readlines(self) -> list[str]:
        return list(self)

    def _not_text(self, found: str) -> NotText:
        return NotText(f"{self._name}: {found}, up to byte {self._position}: convert the text to UTF-8")


def _is_utf16(raw: bytes, first: bool) -> bool:
    """Whether a NUL is half of the text's first character or of its first line feed, or UTF-16's mark begins it."""
    if not first:
        return raw.startswith(b"\0")
    return raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:2] or raw.endswith(b"\0\n")


def open_lines(path: Any, mode: str = "r", **options: Any) -> Any:
    """Like `open`, but reads text with TextLines."""
    return TextLines(path) if mode == "r" else open(path, mode, **options)


def find_offsets(filename: str, num_chunks: int) -> list[int]:
    """Offsets in bytes that split the file into parts of similar size. Each part begins at the start of a line."""
    with open(filename, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        offsets = [0]
        for number in range(1, num_chunks):
            file.seek(size // num_chunks * number)
            file.readline()
            offsets.append(file.tell())
    return [*offsets, size]


def buffered_read(input: str, buffer_size: int) -> Iterator[list[str]]:
    """Stripped lines of a file, or of standard input (`-`), in lists of at most `buffer_size`."""
    with TextLines(input) as lines:
        while batch := [line.strip() for line in islice(lines, buffer_size)]:
            yield batch


class StandardInput:
    """Replaces `sys` in a module that uses only `sys.stdin`."""

    @property
    def stdin(self) -> TextLines:
        return TextLines("-")


def given(**functions: Any) -> Callable[[Any], None]:
    """Replaces these functions of a module."""
    return lambda module: vars(module).update(functions)


LINE_ENDS = Patch(
    name="line-ends",
    symptom="a carriage return within a line splits it: source and target differ in length, and pairs are wrong",
    after={
        "fairseq.file_chunker_utils": given(find_offsets=find_offsets, Chunker=TextLines),
        "fairseq.data.dictionary": given(open=open_lines),
        "fairseq.data.indexed_dataset": given(open=open_lines),
        "fairseq.utils": given(open=open_lines),
        "fairseq_cli.interactive": given(buffered_read=buffered_read),
        "fairseq_cli.preprocess": given(open=open_lines),
        "fairseq_cli.score": given(open=open_lines, sys=StandardInput()),
    },
)
