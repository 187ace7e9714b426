"""Lines of text in UTF-8: what ends a line, and what is not text."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from pathlib import Path


def read_lines(path: Path, *, name: str = "") -> Iterator[str]:
    """The lines of a text file, see `decoded_lines`.

    :param name: what errors call the file; its path where empty.
    """
    with path.open("rb") as file:
        yield from decoded_lines(file, name or str(path))


def decoded_lines(file: Iterable[bytes], name: str, *, stray_nul: bool = False) -> Iterator[str]:
    """The lines of an open text, each as `decoded_line` gives it.

    :param stray_nul: a sentence may have NUL characters, unless the text is UTF-16.
    """
    for number, raw in enumerate(file, start=1):
        yield decoded_line(raw, number, name, nul=stray_nul and not _begins_utf16(raw, number))


def decoded_line(raw: bytes, number: int, name: str, *, nul: bool = False) -> str:
    """A line of a text without its end, a line feed with or without a carriage return before it.

    Nothing else ends a line. A byte order mark in front of the text is not part of it.

    :param number: counts the text's lines from 1.
    :param name: of the text, for errors.
    :param nul: the line may have NUL characters.
    :raises ValueError: it is not UTF-8, or has NUL characters.
    """
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(BOM_UTF8)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name}: line {number} is not valid UTF-8 (byte 0x{line[error.start]:02x} at position "
            f"{error.start + 1}): convert the text to UTF-8 (from Latin-1: iconv -f LATIN1 -t UTF-8)"
        ) from error
    if "\0" in text and not nul:
        raise ValueError(
            f"{name}: line {number} has NUL characters, as UTF-16 has: expected text in UTF-8 "
            "(from UTF-16: iconv -f UTF-16 -t UTF-8)"
        )
    return text


def _begins_utf16(raw: bytes, number: int) -> bool:
    """Whether a NUL is half of the text's first character or of its first line feed."""
    return b"\0" in raw[: {1: 2, 2: 1}.get(number, 0)]
