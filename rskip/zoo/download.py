"""A model's files from the web into the cache: resumed, verified before they get their names, by one process at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from rskip.files.disk import disk_space
from rskip.files.lock import one_at_a_time
from rskip.zoo.entry import ModelEntry
from rskip.zoo.sums import difference

ATTEMPTS = 3
FIRST_WAIT = 1.0  # seconds before the second attempt
MIRROR = "RSKIP_HUB_MIRROR"


def fetch_model(entry: ModelEntry, address: str, folder: Path) -> None:
    """Brings into `folder` what it lacks of the model's files, or has damaged, from `address`/PATH.

    A file appears, or is replaced, when it is whole and its sum is right. What an interrupted download received stays
    in PATH.partial, and the next one goes on from there.

    :raises FileNotFoundError: the server lacks a file, or sends a web page in its place.
    :raises ValueError: a file of another size or sum; it is removed.
    :raises OSError: the server can't be reached, or `folder` can't be written.
    """
    from rskip.files.download import (
        download,  # its imports would nearly double those of `rskip zoo list`, which fetches none
    )

    advice = "free some, or set TORCH_HOME to a folder on another disk"
    with _said_for_models(folder), disk_space(folder, advice=advice), one_at_a_time(folder):
        for path, file in entry.files.items():
            if difference(folder / path, file) is not None:
                download(
                    f"{address}/{quote(path)}",
                    folder / path,
                    size=file.size,
                    sha256=file.sha256,
                    attempts=ATTEMPTS,
                    first_wait=FIRST_WAIT,
                )


@contextmanager
def _said_for_models(folder: Path) -> Iterator[None]:
    """Lets errors name what a user of models can change; the downloader speaks of --mirror."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise OSError(
                f"{error.filename or folder}: {error.strerror}: set TORCH_HOME to a folder that can be written, or "
                f"{MIRROR} to a folder that has the model's files"
            ) from error
        raise type(error)(str(error).replace("--mirror", MIRROR)) from error
    except ValueError as error:
        raise ValueError(str(error).replace("--mirror", MIRROR)) from error
