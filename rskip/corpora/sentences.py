"""Reading text files of one sentence a line, and refusing those that are not."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast


def read_sentences(path: Path) -> Iterator[str]:
    """Lines of a text file, or of a gzip file (`.gz`), without their ends and a byte order mark at the beginning.

    Only a line feed, or a carriage return and a line feed, ends a line. Every other character is left as it is.

    :raises ValueError: bytes that are not UTF-8, or a gzip file cut short or damaged; names file and line.
    """
    number = 0
    with _open_bytes(path) as file:
        try:
            for line in file:
                number += 1
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                    _refuse_utf16(path, line)
                yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: line {number} is not valid UTF-8 (byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1}): convert the file to UTF-8, from Latin-1 by iconv -f LATIN1 -t UTF-8"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is damaged or cut short after line {number} ({error}): fetch the whole file again"
            ) from error


def _refuse_utf16(path: Path, first_line: bytes) -> None:
    if first_line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in first_line[:2]:
        raise ValueError(f"{path} is UTF-16: convert the file to UTF-8, by iconv -f UTF-16 -t UTF-8")


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
