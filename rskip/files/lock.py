"""Locks: a folder that one process works in, an output that one process makes at a time."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rskip.files.disk import naming


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


@contextmanager
def one_at_a_time(output: Path) -> Iterator[None]:
    """Waits until no other process is within this block for the same `output`, and keeps others out of it.

    Processes that are started in the block with `close_fds=False` hold the lock too: what a killed process
    had started ends before the next one begins.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    path = output.with_name(f".{output.name}.lock")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that is making {output}", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_at(descriptor, path):
            break
        os.close(descriptor)  # of a lock that the process before removed
    os.set_inheritable(descriptor, True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
