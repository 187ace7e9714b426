"""Folders that one process works in at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rskip.write_errors import naming


@contextmanager
def folder_lock(folder: Path, *, busy: str) -> Iterator[int]:
    """Makes the folder where it is missing, holds it for this process, and gives the lock's descriptor.

    A child that inherits the descriptor keeps the lock, so that who outlives a killed parent is never joined by a
    second one.

    :param busy: the message where another process holds the folder; "{process}" in it becomes that one's number.
    :raises ValueError: another process holds it.
    :raises OSError: the disk is full, or it can't be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
            raise ValueError(busy.replace("{process}", holder)) from None
        os.ftruncate(descriptor, 0)
        with naming(path, consequence="make room and repeat the command"):
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)
