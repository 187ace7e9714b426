"""Folders that are made whole or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """Gives an empty folder beside `output` that becomes `output` if the block ends well, or is removed.

    What a killed process left of it is removed first. An `output` that exists is replaced, so ask before.

    :raises ValueError: another process is making the same folder.
    """
    building = output.with_name(f".{output.name}.building")
    replaced = output.with_name(f".{output.name}.replaced")
    output.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock(building, output)
    try:
        for left in building.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()
        if output.exists():
            shutil.rmtree(replaced, ignore_errors=True)
        elif replaced.exists():
            replaced.rename(output)  # a process was killed between the two renames below
        try:
            yield building
            if output.exists():
                output.rename(replaced)
            building.rename(output)
            shutil.rmtree(replaced, ignore_errors=True)
        except BaseException:
            if replaced.exists() and not output.exists():
                replaced.rename(output)
            shutil.rmtree(building, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _lock(building: Path, output: Path) -> int:
    """Makes `building` and locks it for this process, until the descriptor that is given back is closed."""
    while True:
        building.mkdir(exist_ok=True)
        try:
            descriptor = os.open(building, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ValueError(
                f"another process is making {output} just now: wait for it, or end it"
            ) from error
        # The process that had the lock may have renamed or removed the folder meanwhile.
        if building.is_dir() and os.path.samestat(os.fstat(descriptor), building.stat()):
            return descriptor
        os.close(descriptor)
