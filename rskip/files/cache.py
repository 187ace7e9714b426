"""Where downloads are kept, what is known of each file there, and paths as users write them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rskip.files.checksum import sha256_file
from rskip.files.whole import atomic_file

ALWAYS_SUMMED = 64 << 20
"""Files of at most this many bytes are summed whenever they are verified; it takes a fraction of a second."""


@dataclass(frozen=True)
class FetchedFile:
    """A file on this machine, verified."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FileMetadata:
    """What a file was when it came; kept beside it in NAME.json.

    :param url: where it came from.
    :param version: which version of its origin; "" where it didn't say.
    :param date: when it came, UTC.
    :param modified: the file's modification time in nanoseconds when its sum was last computed.
    """

    url: str
    version: str
    size: int
    sha256: str
    date: str
    modified: int


def cache_folder() -> Path:
    """$RSKIP_DATA, or ~/.cache/rskip/data.

    Several processes and users may share it. Who only reads it needs nothing more; users who all fetch into it must be
    able to write to each other's files (a common group, umask 002).
    """
    return expanded_path(os.environ.get("RSKIP_DATA") or "~/.cache/rskip/data", "RSKIP_DATA")


def expanded_path(path: str | Path, source: str) -> Path:
    """The path with the home folder in place of `~` or `~user`.

    :param source: what it was given as, such as "the mirror" or RSKIP_DATA, for the error.
    :raises ValueError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{source} {path}: no home folder of that user is known: give the whole path") from error


def verified(
    path: Path, *, url: str, version: str = "", size: int | None = None, sha256: str | None = None
) -> FetchedFile | None:
    """The file at `path`, if it is the one that is meant and is whole; None where it isn't.

    Where no sum is known it must be what it was when it came, or, put there by hand, is taken as it is. A large file
    (over `ALWAYS_SUMMED`) whose size and modification time are those of its metadata is not read again: what damages
    it without changing either is found by the checksum that gzip, zip and xz files carry, when they are unpacked.

    :param url: where such a file comes from, for its metadata.
    :param version: the version of its origin that it must be of.
    """
    if not path.is_file():
        return None
    status, metadata = path.stat(), _read_metadata(path)
    if size not in (None, status.st_size) or (metadata.version if metadata else "") != version:
        return None
    unchanged = metadata is not None and (metadata.size, metadata.modified) == (status.st_size, status.st_mtime_ns)
    if metadata is not None and unchanged and status.st_size > ALWAYS_SUMMED:
        found = metadata.sha256
    else:
        found = sha256_file(path)
    if found != (sha256 or (metadata.sha256 if metadata else found)):
        return None
    if metadata is None or not unchanged or metadata.sha256 != found:
        with contextlib.suppress(OSError):  # a cache that this user may only read is good enough to be used
            if metadata is not None and metadata.sha256 == found:
                _write_metadata(path, dataclasses.replace(metadata, modified=status.st_mtime_ns))
            else:
                keep_metadata(path, url=url, version=version, sha256=found)
    return FetchedFile(path, status.st_size, found)


def keep_metadata(path: Path, *, url: str, version: str = "", sha256: str | None = None) -> FetchedFile:
    """Writes down what a file is that came just now.

    :param sha256: its sum; None: it is computed.
    """
    status = path.stat()
    metadata = FileMetadata(
        url=url,
        version=version,
        size=status.st_size,
        sha256=sha256 or sha256_file(path),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        modified=status.st_mtime_ns,
    )
    _write_metadata(path, metadata)
    return FetchedFile(path, metadata.size, metadata.sha256)


def _metadata_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _write_metadata(path: Path, metadata: FileMetadata) -> None:
    with atomic_file(_metadata_file(path)) as temporary:
        temporary.write_text(json.dumps(dataclasses.asdict(metadata), indent=2) + "\n", encoding="utf-8")


def _read_metadata(path: Path) -> FileMetadata | None:
    """None where there is none that can be read: the file is summed again."""
    try:
        return FileMetadata(**json.loads(_metadata_file(path).read_text(encoding="utf-8")))
    except (FileNotFoundError, TypeError, ValueError):
        return None
