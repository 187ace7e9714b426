"""Computes checksums of files, and compares a file with the expected one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sha256_file(path: str | os.PathLike[str]) -> str:
    """The hexadecimal SHA-256 of a file, read in blocks."""
    return file_sum(path, "sha256")


def file_sum(path: str | os.PathLike[str], kind: str) -> str:
    """The hexadecimal checksum of a file; `kind` is a name from hashlib, such as sha256 or md5."""
    digest = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def file_difference(
    path: Path, *, size: int | None = None, sha256: str | None = None, md5: str | None = None
) -> str | None:
    """How a file differs from the expected one, in words that follow its name; None if it doesn't.

    The file is read every time, which also finds damage that leaves size and date unchanged. 10 MB take a few
    hundredths of a second.

    :raises OSError: the file can't be read.
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
