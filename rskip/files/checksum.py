"""Sums of files, and whether a file is the one that is meant."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of the file's bytes, read in blocks."""
    return file_sum(path, "sha256")


def file_sum(path: str | os.PathLike[str], kind: str) -> str:
    """Hexadecimal sum of the file's bytes; `kind` is one of hashlib's, such as sha256 or md5."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_difference(
    path: Path, *, size: int | None = None, sha256: str | None = None, md5: str | None = None
) -> str | None:
    """In what the file is not the one that is meant, as words that follow its name; None where it is.

    Its bytes are read every time: a damage that leaves size and date as they were is found too, and 10 MB take a few
    hundredths of a second.

    :raises OSError: it can't be read.
    """
    if not path.is_file():
        return "is missing"
    found_size = path.stat().st_size
    if size not in (None, found_size):
        return f"has {found_size:,} bytes, expected {size:,}"
    for kind, expected in (("sha256", sha256), ("md5", md5)):
        if expected is not None and (found := file_sum(path, kind)) != expected:
            return f"has the {kind} {found}, expected {expected}"
    return None
