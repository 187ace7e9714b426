"""Opens files that are compressed with gzip, bzip2, xz or zstd, and decompresses them."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from rskip.extras import advice

SUFFIXES = (".gz", ".xz", ".zst", ".bz2")
"""Suffixes of compressed files."""

_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


@contextmanager
def open_unpacked(path: Path, *, name: str = "", place: Callable[[], str] = str) -> Iterator[IO[bytes]]:
    """Opens a file for reading and decompresses its content. The first bytes tell whether and how it is compressed.

    A file counts as damaged if it has a suffix of SUFFIXES but the first bytes of none.

    :param name: name of the file in errors; empty: its path.
    :param place: returns the words for errors that say how far the file was read.
    :raises ValueError: a compressed file is damaged or truncated, also while it is read within the block; or zstd is
        needed and not installed.
    """
    name = name or str(path)
    with path.open("rb") as file:
        beginning = file.read(6)
        file.seek(0)
        opener = _unpacker(beginning, name)
        if opener is None and (path.suffix not in SUFFIXES or not beginning):
            yield file
            return
        try:
            if opener is None:
                raise EOFError(f"its first bytes are not those of a {path.suffix} file")
            with opener(file) as unpacked:
                yield cast(IO[bytes], unpacked)
        except Exception as error:
            if not is_damage(error):
                raise
            raise ValueError(
                f"{name} is damaged or truncated{place()} ({error}): get the complete file again"
            ) from error


def _unpacker(beginning: bytes, name: str) -> Callable[[IO[bytes]], Any] | None:
    """The function that opens a compressed file with these first six bytes; None if it is not compressed.

    :raises ValueError: zstd is needed and not installed. The error names the file by `name`.
    """
    if beginning.startswith(b"\x28\xb5\x2f\xfd"):
        if (zstd := _zstd()) is None:
            ways = f"{advice('zstd')}, or decompress the file with zstd -d"
            raise ValueError(f"{name} is compressed with zstd, which this Python can't read: {ways}")
        return cast("Callable[[IO[bytes]], Any]", zstd.open)
    return next((opener for magic, opener in _OPENERS.items() if beginning.startswith(magic)), None)


def is_damage(error: Exception) -> bool:
    """Whether an error raised while reading a compressed file means that the file is damaged."""
    if isinstance(error, OSError):
        return error.errno is None  # from gzip and bz2
    zstd = _zstd()
    return isinstance(error, (EOFError, zlib.error, lzma.LZMAError, *((zstd.ZstdError,) if zstd else ())))


def _zstd() -> Any:
    """The zstd module: Python's own from 3.14 on, otherwise its backport; None if neither is installed."""
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    return None
