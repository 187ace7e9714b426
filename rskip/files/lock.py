"""Locks files and outputs for one process at a time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rskip.files.flock import hold


class Locked(ValueError):
    """Raised if another process holds a lock.

    :param process: the number of the process if the lock file has it, otherwise "unknown".
    """

    def __init__(self, path: Path, process: str) -> None:
        self.path, self.process = path, process
        super().__init__(f"{path} is locked by another process ({process}): wait until it ends")


def open_locked(path: Path, *, waiting_for: str = "") -> int:
    """Opens a file for only this process, and creates it if it is missing.

    The lock ends when the descriptor is closed, here and in every child process that inherited it. While a child of a
    killed parent runs, no second process can take the lock. On a file system without locks, prints a line on stderr.

    :param waiting_for: what the other process makes; printed on stderr while this one waits. "": don't wait.
    :returns: the descriptor.
    :raises Locked: another process holds the file, or has just renamed or removed it. Only without `waiting_for`.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            held = hold(descriptor)
            if held is None:
                print(f"{path.parent} doesn't support locks: run only one process at a time there", file=sys.stderr)
                return descriptor
            if not held:
                process = _read_process(descriptor)
                if not waiting_for:
                    raise Locked(path, process)
                print(f"waiting for another process ({process}), which is making {waiting_for}", file=sys.stderr)
                hold(descriptor, wait=True)
            if _is_at(descriptor, path):
                return descriptor
            if not waiting_for:
                raise Locked(path, "unknown")
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the former holder removed this lock file


class _Held(threading.local):
    """The lock files held by the current thread."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


@contextmanager
def one_at_a_time(output: Path) -> Iterator[None]:
    """Lets one process at a time into the block for an `output`; others wait.

    A thread inside the block may enter it again.

    On Linux and macOS, processes that are started in the block with `close_fds=False` hold the lock too. The next
    process then waits for the children of a killed one.
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
        with suppress(OSError):  # if the disk is full, the block itself raises a better error
            _write_process(descriptor)
        yield
    finally:
        held.discard(place)
        if sys.platform == "win32":  # Windows can't remove an open file
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
    """Whether this name still belongs to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
