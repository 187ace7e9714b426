"""Locks caches and outputs for one process at a time, by the kernel's file locks."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Locked(ValueError):
    """Raised if another process holds a lock.

    :param process: the number of the process if it is known, otherwise "unknown".
    """

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        super().__init__(f"{path} is locked by another process ({process}): wait until it ends")


class _Held(threading.local):
    """The lock files held by the current thread."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_held = _Held()


@contextmanager
def one_at_a_time(output: Path, *, wait: bool = True) -> Iterator[None]:
    """Lets one process at a time into the block for an `output`. With `wait`, a thread inside it may enter it again.

    :param wait: wait for another process, which a line on stderr tells.
    :raises Locked: another process or this thread is in the block. Only without `wait`.
    """
    from filelock import FileLock, Timeout  # takes a tenth of the time in which `rskip translate` starts

    output.parent.mkdir(parents=True, exist_ok=True)
    path = output.parent.resolve() / f".{output.name}.lock"
    owner = path.with_suffix(".owner")
    held = _held.paths  # another thread may end the block, such as by collecting a generator
    if path in held:
        if not wait:
            raise Locked(output, str(os.getpid()))
        yield
        return
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        process = _read_process(owner)
        if not wait:
            raise Locked(output, process) from None
        print(f"waiting for another process ({process}), which is making {output}", file=sys.stderr)
        lock.acquire()
    held.add(path)
    try:
        with suppress(OSError):  # if the disk is full, the block itself raises a better error
            owner.write_text(str(os.getpid()))
        yield
    finally:
        held.discard(path)
        owner.unlink(missing_ok=True)
        with suppress(PermissionError):  # Windows can't remove an open file
            path.unlink(missing_ok=True)
        lock.release()


def _read_process(owner: Path) -> str:
    with suppress(OSError):
        if (process := owner.read_text(errors="replace").strip()).isdecimal():
            return process
    return "unknown"
