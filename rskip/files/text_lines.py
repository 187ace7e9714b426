"""Lines of text in UTF-8: what ends a line, and what is not text."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from pathlib import Path


def read_lines(path: Path, *, name: str = "") -> Iterator[str]:
    """The lines of a text file, see `decoded_lines`.

    :param name: what errors call the file; its path where empty.
    """
    with path.open("rb") as file:
        yield from decoded_lines(file, name or str(path))


def decoded_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open text, each as `decoded_line` gives it."""
    for number, raw in enumerate(file, start=1):
        yield decoded_line(raw, number, name)


def decoded_line(raw: bytes, number: int, name: str) -> str:
    """A line of a text without its end: a line feed, and the carriage returns before it.

    Nothing else ends a line. A byte order mark in front of the text is not part of it.

    :param number: counts the text's lines from 1.
    :param name: the text's name in errors.
    :raises ValueError: the text is not UTF-8.
    """
    if _is_utf16(raw, number):
        raise ValueError(f"{name}: line {number} is UTF-16: convert the text to UTF-8 (iconv -f UTF-16 -t UTF-8)")
    line = raw.removesuffix(b"\n").rstrip(b"\r")
    if number == 1:
        line = line.removeprefix(BOM_UTF8)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: line {number} is not valid UTF-8 (byte 0x{line[error.start]:02x} at position "
            f"{error.start + 1}): convert the text to UTF-8 (from Latin-1: iconv -f LATIN1 -t UTF-8)"
        ) from error


def _is_utf16(raw: bytes, number: int) -> bool:
    """Whether the text begins with UTF-16's mark, or a NUL is half of its first character or first line feed."""
    if number == 1:
        return raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or b"\0" in raw[:2] or raw.endswith(b"\0\n")
    return number == 2 and raw.startswith(b"\0")
