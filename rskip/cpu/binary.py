"""Checks of a compiled file before it is loaded."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

_MAGIC, _BYTES_64, _LITTLE = b"\x7fELF", 2, 1  # the first bytes of an ELF file, as on Linux
_HEADER = struct.Struct("<18xH20xQ10xHH")  # processor; place, size and number of the section headers, at the end


def check_binary(path: Path) -> None:
    """Refuses what the system's loader would crash on or misname. Files of other systems than Linux are not checked.

    :raises OSError: the file is cut off, or for another processor.
    """
    header = _header(path)
    if header is None:
        return
    processor, start, size, count = header
    own = _header(Path(sys.executable)) if sys.executable else None
    if own is not None and own[0] != processor:
        raise OSError("it was compiled for another processor")
    if path.stat().st_size < start + size * count:
        raise OSError("the file is truncated")


def _header(path: Path) -> tuple[int, int, int, int] | None:
    with path.open("rb") as file:
        start = file.read(_HEADER.size)
    if len(start) < _HEADER.size or start[:6] != _MAGIC + bytes([_BYTES_64, _LITTLE]):
        return None
    processor, place, size, count = _HEADER.unpack(start)
    return processor, place, size, count
