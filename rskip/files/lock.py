"""Locks of files: a file that one process works on, an output that one process makes at a time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rskip.files.flock import hold


class Locked(ValueError):
    """Another process holds a lock.

    :param process: its number where the lock is known to hold it, else "unknown".
    """

    def __init__(self, path: Path, process: str) -> None:
        self.path, self.process = path, process
        super().__init__(f"{path} is locked by another process ({process}): wait until it ends")


def open_locked(path: Path, *, waiting_for: str = "") -> int:
    """Opens a file, made where it is missing, for one process alone.

    The lock ends when the descriptor is closed, here and in every child process that inherited it: who outlives a
    killed parent is never joined by a second one. On a file system without locks a line on stderr says so.

    :param waiting_for: what another process makes; stderr says it while this one waits. "": it doesn't wait.
    :returns: the descriptor.
    :raises Locked: another process holds the file, or renamed or removed it just now; only without `waiting_for`.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = hold(descriptor)
            if held is None:
                print(f"{path.parent} has no file locks: let one process at a time work there", file=sys.stderr)
                return descriptor
            if not held:
                process = _read_process(descriptor)
                if not waiting_for:
                    raise Locked(path, process)
                print(f"waiting for another process ({process}) that is making {waiting_for}", file=sys.stderr)
                hold(descriptor, wait=True)
            if _is_at(descriptor, path):
                return descriptor
            if not waiting_for:
                raise Locked(path, "unknown")
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # of a lock that the process before removed


class _Held(threading.local):
    """The lock files that the current thread holds."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


@contextmanager
def one_at_a_time(output: Path) -> Iterator[None]:
    """Waits until no other process is within this block for the same `output`, and keeps others out of it.

    A thread inside the block may enter it again.

    On Linux and macOS, processes that are started in the block with `close_fds=False` hold the lock too: what a killed
    process had started ends before the next one begins.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    path = output.with_name(f".{output.name}.lock")
    place = path.parent.resolve() / path.name
    held = _held.paths  # another thread may end the block, such as by collecting a generator
    if place in held:
        yield
        return
    descriptor = open_locked(path, waiting_for=str(output))
    os.set_inheritable(descriptor, True)
    held.add(place)
    try:
        with suppress(OSError):  # of a full disk the block itself has more to say
            _write_process(descriptor)
        yield
    finally:
        held.discard(place)
        if sys.platform == "win32":  # an open file can't be removed there
            os.close(descriptor)
            with suppress(PermissionError):  # the next process has opened it
                path.unlink(missing_ok=True)
        else:
            try:
                path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def _write_process(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, str(os.getpid()).encode())


def _read_process(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    process = os.read(descriptor, 32).decode(errors="replace").strip()
    return process if process.isdecimal() else "unknown"


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that has this name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
