"""Reads lines of UTF-8 text, and defines what ends a line and what is not text."""

from __future__ import annotations

import unicodedata
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from pathlib import Path


def read_lines(path: Path, *, name: str = "") -> Iterator[str]:
    """The lines of a text file; see `decoded_lines`.

    :param name: the file's name in errors; its path if empty.
    """
    with path.open("rb") as file:
        yield from decoded_lines(file, name or str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open file, decoded by `decoded_line`."""
    for number, raw in enumerate(file, start=1):
        yield decoded_line(raw, number, name)


def decoded_line(raw: bytes, number: int, name: str) -> str:
    """A line of text without its end, which is a line feed and any carriage returns before it.

    Nothing else ends a line, so a text whose lines end only with carriage returns, which would be one line, is refused.
    A byte order mark before the first line is dropped.

    :param number: the line's number, from 1.
    :param name: the text's name in errors.
    :raises ValueError: the text is not UTF-8, or has carriage returns as its only line ends.
    """
    if _is_utf16(raw, number):
        raise ValueError(f"{name}: line {number} is UTF-16: convert the text to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    line = raw.removesuffix(b"\n").rstrip(b"\r")
    if number == 1 and b"\r" in line and not raw.endswith(b"\n"):  # a line without line feed is the last one
        raise ValueError(
            f"{name}: its lines end with carriage returns only: convert them to line feeds (tr '\\r' '\\n')"
        )
    if number == 1:
        line = line.removeprefix(BOM_UTF8)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: line {number} is not valid UTF-8 (byte 0x{line[error.start]:02x} at position "
            f"{error.start + 1}): convert the text to UTF-8 (from Latin-1: iconv -f LATIN1 -t UTF-8)"
        ) from error


def is_blank(line: str) -> bool:
    """Whether all characters are spaces, control characters or invisible format characters (zero-width spaces)."""
    return all(each.isspace() or unicodedata.category(each) in ("Cc", "Cf") for each in line)


def _is_utf16(raw: bytes, number: int) -> bool:
    """Whether the text begins with a UTF-16 mark, or its first character or first line feed contains a NUL."""
    if number == 1:
        return raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in raw[:2] or raw.endswith(b"\0\n")
    return number == 2 and raw.startswith(b"\0")
