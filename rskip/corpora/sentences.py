"""Reading text files of one sentence a line, and refusing those that are not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

from rskip.corpora.corpus import Pair


def read_sentences(path: Path) -> Iterator[str]:
    """Lines of a text file, or of a gzip file (`.gz`), without their ends. Only a line feed ends a line.

    :raises ValueError: bytes that are not UTF-8, or a gzip file cut short or damaged; names file and line.
    """
    number = 0
    with _open_bytes(path) as file:
        try:
            for line in file:
                number += 1
                yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: line {number} is not valid UTF-8 (byte 0x{line[error.start]:02x} at position "
                f"{error.start + 1}): convert the file to UTF-8"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is damaged or cut short after line {number} ({error}): fetch the whole file again"
            ) from error


def _open_bytes(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_pairs(source: Path, target: Path, *, sentences: int) -> Iterator[Pair]:
    """Lines of two files that are translations of each other.

    :param sentences: how many lines both must have.
    :raises ValueError: as `read_sentences`; or an empty file, another count of lines, or unequal counts.
    """
    counts = [0, 0]
    for pair in zip_longest(read_sentences(source), read_sentences(target)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None not in pair:
            yield cast(Pair, pair)
    if 0 in counts:
        raise ValueError(f"{(source, target)[counts.index(0)]} is empty: expected {sentences:,} sentences")
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: "
            "files that translate each other must have the same number"
        )
    if counts[0] != sentences:
        raise ValueError(f"{source} has {counts[0]:,} sentences: expected {sentences:,}")
