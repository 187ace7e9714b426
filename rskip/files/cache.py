"""The download cache, the metadata of its files, and the expansion of paths that users give."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rskip.files.checksum import file_difference, sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.settings.errors import SettingError

ALWAYS_SUMMED = 64 << 20
"""Checksums of files up to this size are computed on every verification, which takes a fraction of a second."""

PACKED = (".gz", ".xz")
"""Suffixes of compressed files: a user's folder may hold NAME.gz or NAME.xz instead of NAME."""


@dataclass(frozen=True)
class FetchedFile:
    """A verified file on this machine."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FileMetadata:
    """Metadata of a downloaded file, stored next to it in NAME.json.

    :param url: its URL.
    :param version: the version of its origin; "" if unknown.
    :param date: the date of the download, UTC.
    :param modified: the file's modification time in nanoseconds when its checksum was last computed.
    """

    url: str
    version: str
    size: int
    sha256: str
    date: str
    modified: int


def cache_folder() -> Path:
    """$RSKIP_DATA, or ~/.cache/rskip/data.

    Several processes and users may share it. Users who download into it must be able to write to each other's files (a
    common group, umask 002); users who only read it need nothing else.
    """
    return expanded_path(os.environ.get("RSKIP_DATA") or "~/.cache/rskip/data", "RSKIP_DATA")


def expanded_path(path: str | Path, source: str) -> Path:
    """Replaces `~` or `~user` in a path by the home folder.

    :param source: how the path was given, such as "the mirror" or RSKIP_DATA, for the error.
    :raises ValueError: the user doesn't exist.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{source} {path}: this user has no known home folder: give the absolute path") from error


def verified(
    path: Path, *, url: str, version: str = "", size: int | None = None, sha256: str | None = None
) -> FetchedFile | None:
    """The file at `path` if it is the expected file and complete, otherwise None.

    Without a known checksum, the file must match its metadata; a file without metadata, put there by hand, is accepted.
    A large file (over `ALWAYS_SUMMED`) is not read again if its size and modification time match its metadata. Damage
    that changes neither is found by the checksums of gzip, zip and xz when such a file is unpacked.

    :param url: the URL of the file, for its metadata.
    :param version: the expected version of its origin.
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
        with contextlib.suppress(OSError):  # a read-only cache can still be used
            if metadata is not None and metadata.sha256 == found:
                _write_metadata(path, dataclasses.replace(metadata, modified=status.st_mtime_ns))
            else:
                keep_metadata(path, url=url, version=version, sha256=found)
    return FetchedFile(path, status.st_size, found)


def keep_metadata(path: Path, *, url: str, version: str = "", sha256: str | None = None) -> FetchedFile:
    """Writes the metadata of a file that was just downloaded.

    :param sha256: its checksum; None: compute it.
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


def file_or_packed(folder: Path, name: str) -> Path | None:
    """The file of this name in the folder, otherwise NAME.gz or NAME.xz."""
    candidates = (folder / (name + suffix) for suffix in ("", *PACKED))
    return next((path for path in candidates if path.is_file()), None)


def unpacking_folder(cache: Path, folder: Path) -> Path:
    """The folder in a cache for the unpacked files of another folder."""
    return cache / "unpacked" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]


def unpack(
    packed: Path, path: Path, *, url: str, size: int | None = None, sha256: str | None = None, md5: str | None = None
) -> FetchedFile:
    """Unpacks a .gz or .xz file to `path`, unless it is there already.

    :param url: the URL of another copy, for the error.
    :raises ValueError: the packed file is damaged, or its content has another size or checksum.
    """
    status = packed.stat()
    version = f"{packed.name}, {status.st_size} bytes, modified {status.st_mtime_ns}"
    opener: Callable[[Path], Any] = gzip.open if packed.suffix == ".gz" else lzma.open
    with one_at_a_time(path):
        if found := verified(path, url=packed.as_uri(), version=version, size=size, sha256=sha256):
            return found
        try:
            with opener(packed) as source, atomic_file(path) as temporary, temporary.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise ValueError(f"{packed} is damaged or truncated ({error}): replace it with a complete file") from error
        if wrong := file_difference(path, size=size, sha256=sha256, md5=md5):
            raise ValueError(f"{packed}, unpacked, {wrong}: replace it with {url}")
        return keep_metadata(path, url=packed.as_uri(), version=version, sha256=sha256)


def _metadata_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _write_metadata(path: Path, metadata: FileMetadata) -> None:
    with atomic_file(_metadata_file(path)) as temporary:
        temporary.write_text(json.dumps(dataclasses.asdict(metadata), indent=2) + "\n", encoding="utf-8")


def _read_metadata(path: Path) -> FileMetadata | None:
    """Reads the metadata of a file. None if it can't be read: the checksum is then computed again."""
    try:
        return read_state(_metadata_file(path), FileMetadata, advice="")
    except (FileNotFoundError, SettingError):
        return None
