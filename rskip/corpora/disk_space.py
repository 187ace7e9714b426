"""A full disk, said clearly."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def disk_space(folder: Path, *, advice: str) -> Iterator[None]:
    """Lets a full disk be an OSError that names the file, or else `folder`, and gives `advice`.

    A child process's message counts too.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC or "No space left on device" in str(error):
            raise OSError(f"no space left for {error.filename or folder}: {advice}") from error
        raise
