"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path


def expanded_path(path: str | Path, source: str) -> Path:
    """The path with the home folder in place of `~` or `~user`.

    :param source: what it was given as, such as --mirror or RSKIP_DATA, for the error.
    :raises ValueError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{source} {path}: no home folder of that user is known: give the whole path") from error
