"""The download cache, the checksums of its files, and the expansion of paths that users give."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rskip.files.checksum import file_difference, sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.packed import open_unpacked
from rskip.files.whole import atomic_file

ADDRESSES = ("http://", "https://")  # a mirror that begins so is not a folder

PACKED = (".gz", ".xz")
"""Suffixes of compressed files: a user's folder may hold NAME.gz or NAME.xz instead of NAME."""


@dataclass(frozen=True)
class FetchedFile:
    """A verified file on this machine."""

    path: Path
    size: int
    sha256: str


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


def verified(path: Path, *, size: int | None = None, sha256: str | None = None) -> FetchedFile | None:
    """The file at `path` if it is the expected file and complete, otherwise None.

    Without a known checksum, the file must match NAME.sha256, which `downloaded` writes. A file that was put there by
    hand has no NAME.sha256 and is accepted.
    """
    if file_difference(path, size=size):
        return None
    found = sha256_file(path)
    if sha256 is None and (kept := _checksum_file(path)).exists():
        sha256 = kept.read_text(encoding="utf-8", errors="replace").strip()
    return FetchedFile(path, path.stat().st_size, found) if found == (sha256 or found) else None


def downloaded(path: Path, *, sha256: str | None = None) -> FetchedFile:
    """The file that was just downloaded.

    :param sha256: its checksum, which was compared; None: unknown, and it is computed and kept in NAME.sha256.
    """
    found = sha256 or sha256_file(path)
    if sha256 is None:
        with atomic_file(_checksum_file(path)) as temporary:
            temporary.write_text(f"{found}\n", encoding="utf-8")
    return FetchedFile(path, path.stat().st_size, found)


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
    """Unpacks a .gz or .xz file to `path`, unless it is there already with the known checksum.

    :param url: the URL of another copy, for the error.
    :raises ValueError: the packed file is damaged, or its content has another size or checksum.
    """
    known = sha256 or md5
    if known and not file_difference(path, size=size, sha256=sha256, md5=md5):  # also for users who may only read
        return FetchedFile(path, path.stat().st_size, sha256 or sha256_file(path))
    with one_at_a_time(path):
        if not known or file_difference(path, size=size, sha256=sha256, md5=md5):
            with atomic_file(path) as temporary:
                with open_unpacked(packed) as source, temporary.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                if wrong := file_difference(temporary, size=size, sha256=sha256, md5=md5):
                    raise ValueError(f"{packed}, unpacked, {wrong}: replace it with {url}")
        return FetchedFile(path, path.stat().st_size, sha256 or sha256_file(path))


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
