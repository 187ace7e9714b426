"""Reads rows of a binary file on access. R rows, C columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class FileRows:
    """An array in a file, of which slices are read into memory of their own.

    If another process changes the file, a mapped array would change too, or end this process (SIGBUS). Here the next
    read raises an error.

    :param dtype: the type of a value, with its byte order.
    :param shape: R, or R and C.
    :param offset: bytes before the first row.
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...], *, offset: int = 0) -> None:
        self.path, self.shape, self.dtype, self._offset = path, shape, np.dtype(dtype), offset
        self._version = _version(path)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """:raises ValueError: the file was changed since this object was made."""
        first, last, _ = rows.indices(len(self))
        values = np.empty((max(last - first, 0), *self.shape[1:]), self.dtype)
        with self.path.open("rb") as file:
            file.seek(self._offset + first * (values.nbytes // max(len(values), 1)))
            found = file.readinto(values.reshape(-1).view(np.uint8).data)
        if found < values.nbytes or _version(self.path) != self._version:
            raise ValueError(f"{self.path} was changed while it was being read: repeat the command")
        return values


def _version(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
