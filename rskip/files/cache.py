"""Where downloads are kept, and paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$RSKIP_DATA, or ~/.cache/rskip/data.

    Several processes and users may share it. Who only reads it needs nothing more; users who all fetch into it must be
    able to write to each other's files (a common group, umask 002).
    """
    return expanded_path(os.environ.get("RSKIP_DATA") or "~/.cache/rskip/data", "RSKIP_DATA")


def expanded_path(path: str | Path, source: str) -> Path:
    """The path with the home folder in place of `~` or `~user`.

    :param source: what it was given as, such as --mirror or RSKIP_DATA, for the error.
    :raises ValueError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{source} {path}: no home folder of that user is known: give the whole path") from error
