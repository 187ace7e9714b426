"""Errors of writing that name the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path, *, consequence: str) -> Iterator[None]:
    """Makes an OSError in the block one that names `path`, why it could not be written, and the consequence."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, f"{reason}; {consequence}", str(path)) from error
