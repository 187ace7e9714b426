"""Errors of writing that name the file: a full disk, a folder that can't be written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def disk_space(folder: Path, *, advice: str, elsewhere: str | None = None) -> Iterator[None]:
    """Lets a full disk be an OSError that names the file and gives `advice`.

    :param folder: named where the error names no file.
    :param elsewhere: advice where a place can't be written at all; None: such errors stay as they are.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            known = error.strerror in (None, *map(os.strerror, _FULL))
            detail = "" if known else f" ({error.strerror})"
            raise OSError(f"no space left for {error.filename or folder}{detail}: {advice}") from error
        if elsewhere is not None and error.errno in _NOT_WRITABLE and error.filename:
            raise OSError(f"can't write {error.filename} ({error.strerror}): {elsewhere}") from error
        raise


def require_space(path: Path, size: int) -> None:
    """Refuses to begin a file that can't be finished.

    :param path: a file to be, in a folder that exists.
    :param size: bytes that will be written.
    :raises OSError: its disk has less than that free; ENOSPC, for `disk_space` to give its advice.
    """
    free = shutil.disk_usage(path.parent).free
    if size > free:
        raise OSError(errno.ENOSPC, f"{size:,} bytes needed, {free:,} free", str(path))


@contextmanager
def naming(path: Path, *, consequence: str) -> Iterator[None]:
    """Makes an OSError in the block one that names `path`, why it could not be written, and the consequence."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, f"{reason}; {consequence}", str(path)) from error
