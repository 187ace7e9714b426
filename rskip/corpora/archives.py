"""Single files out of archives from elsewhere, which are not trusted."""

from __future__ import annotations

import bz2
import contextlib
import difflib
import errno
import gzip
import json
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from tqdm import tqdm

from rskip.files.disk import disk_space, require_space
from rskip.files.lock import one_at_a_time
from rskip.files.whole import atomic_file

LARGEST_RATIO = 200
"""An archive that unpacks to more than so many times its bytes is no text: text packs to a third or a tenth."""

UNSUSPICIOUS = 64 << 20
"""Bytes that may come out whatever the ratio."""

BLOCK = 1 << 20

_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


class _Content(NamedTuple):
    """One member as it comes out of its archive."""

    member: str
    size: int
    file: IO[bytes]


def extract(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Extracts the named members, each to folder/<member>, and nothing else.

    The archive is one of tar (as it is, or packed by gzip, bzip2 or xz) or zip, whatever its name says. It is read
    once, to its end, and no member is there before all are whole and the archive's own checksums are right (a plain
    tar has none for its contents). Members that an earlier call extracted from the same archive (by size and
    modification time, kept in `folder`) are left as they are. Members that are not named are not looked at.

    :param members: their paths in the archive, such as "training/europarl-v7.de-en.en".
    :returns: where each member is.
    :raises ValueError: a path that leaves the folder; a member that is missing, a link, a device or a folder; an
        archive that is damaged, cut short, no archive at all, or a bomb (over `LARGEST_RATIO`).
    :raises OSError: the disk is too full.
    """
    paths = {member: _path_within(folder, member) for member in members}
    folder.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder / archive.name), disk_space(folder, advice="free some, and run it again"):
        record = folder / f".{archive.name}.json"
        sizes = _extracted_before(record, archive)
        wanted = {member: path for member, path in paths.items() if _size(path) != sizes.get(member)}
        if wanted:
            _extract(archive, wanted)
            sizes |= {member: path.stat().st_size for member, path in wanted.items()}
            with atomic_file(record) as temporary:
                temporary.write_text(json.dumps({**_identity(archive), "members": sizes}), encoding="utf-8")
    return paths


def _path_within(folder: Path, member: str) -> Path:
    path = PurePosixPath(member)
    if member != path.as_posix() or path.is_absolute() or ".." in path.parts or not path.name or "\0" in member:
        raise ValueError(f"archive member {member!r}: expected a path such as folder/file, without '..'")
    for parent in path.parents[:-1]:
        if (folder / parent).is_symlink():
            raise ValueError(f"{folder / parent} is a link: nothing is extracted through it; remove it")
    return folder / path


def _identity(archive: Path) -> dict[str, int]:
    status = archive.stat()
    return {"size": status.st_size, "modified": status.st_mtime_ns}


def _extracted_before(record: Path, archive: Path) -> dict[str, int]:
    """Sizes of the members that were extracted from this very archive."""
    try:
        kept = json.loads(record.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    sizes = kept.pop("members")
    return sizes if kept == _identity(archive) else {}


def _size(path: Path) -> int:
    """Bytes of the file; -1 where there is none."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else -1


def _extract(archive: Path, paths: Mapping[str, Path]) -> None:
    """Writes every member of `paths`, or none."""
    partials: dict[str, Path] = {}
    try:
        for member, size, file in _contents(archive, paths):
            path = paths[member]
            path.parent.mkdir(parents=True, exist_ok=True)
            require_space(path, size)
            partial = path.with_name(f".{path.name}.partial")
            partials[member] = partial
            with partial.open("wb") as output:
                shutil.copyfileobj(file, output, BLOCK)
                output.flush()
                os.fsync(output.fileno())
        for member, partial in partials.items():
            partial.replace(paths[member])
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):
            raise
        # None: from gzip or bz2; EINVAL: a damaged zip file's places for its members are before its beginning
        raise _damaged(archive, error) from error
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def _damaged(archive: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{archive} is damaged, cut short or not an archive ({error}): expected tar, tar.gz, tar.bz2, tar.xz or zip: "
        "remove it and fetch it again"
    )


def _contents(archive: Path, wanted: Collection[str]) -> Iterator[_Content]:
    """The wanted members in the archive's order, each to be read before the next."""
    with archive.open("rb") as file:
        beginning = file.read(6)
        file.seek(0)
        if beginning.startswith(b"PK"):
            yield from _zip_contents(archive, file, wanted)
            return
        opener = next((opener for magic, opener in _OPENERS.items() if beginning.startswith(magic)), None)
        with (
            opener(file) if opener else contextlib.nullcontext(file) as unpacked,
            tqdm(
                total=archive.stat().st_size, desc=f"extract {archive.name}", unit="B", unit_scale=True, disable=None
            ) as bar,
        ):
            yield from _tar_contents(archive, _Metered(archive, file, unpacked, bar), wanted)


class _Metered:
    """The stream that comes out of a packed file: stops at a bomb, and shows how much of the file is read."""

    def __init__(self, archive: Path, packed: IO[bytes], unpacked: IO[bytes], bar: tqdm[Any]) -> None:
        self._archive, self._packed, self._unpacked, self._bar = archive, packed, unpacked, bar
        self._size = 0

    def read(self, size: int) -> bytes:
        block = self._unpacked.read(size)
        self._size += len(block)
        read = self._packed.tell()
        _refuse_bomb(self._archive, packed=read, unpacked=self._size)
        self._bar.update(read - self._bar.n)
        return block


def _refuse_bomb(archive: Path, *, packed: int, unpacked: int) -> None:
    if unpacked > max(UNSUSPICIOUS, LARGEST_RATIO * packed):
        raise ValueError(
            f"{archive}: {packed:,} bytes unpack to {unpacked:,} and more, over {LARGEST_RATIO} times as many: "
            "that is no text corpus, nothing was extracted"
        )


def _tar_contents(archive: Path, stream: _Metered, wanted: Collection[str]) -> Iterator[_Content]:
    names = []
    # "r|" reads on and never back; the stream is unpacked here because tarfile's own gzip doesn't look at checksums
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", bufsize=BLOCK) as tar:
        for info in tar:
            name = PurePosixPath(info.name).as_posix()
            names.append(name)
            if name in wanted:
                kind = _kind_of_tar_member(info)
                if kind:
                    raise _not_a_file(archive, name, kind)
                yield _Content(name, info.size, cast(IO[bytes], tar.extractfile(info)))
    while stream.read(BLOCK):
        pass  # to the packed file's checksum
    _require(archive, wanted, names)


def _kind_of_tar_member(info: tarfile.TarInfo) -> str:
    """What it is, where it isn't an ordinary file."""
    if info.isreg() and not info.issparse():
        return ""
    kinds = {tarfile.SYMTYPE: "symbolic link", tarfile.LNKTYPE: "hard link", tarfile.DIRTYPE: "folder"}
    return kinds.get(info.type, "device or special file")


def _zip_contents(archive: Path, file: IO[bytes], wanted: Collection[str]) -> Iterator[_Content]:
    with zipfile.ZipFile(file) as unpacked:
        infos = {PurePosixPath(info.filename).as_posix(): info for info in unpacked.infolist()}
        _require(archive, wanted, list(infos))
        for name, info in infos.items():
            if name not in wanted:
                continue
            kind = _kind_of_zip_member(info)
            if kind:
                raise _not_a_file(archive, name, kind)
            # both sizes are the archive's own words, but no more than file_size bytes will come out
            packed = min(info.compress_size, archive.stat().st_size)
            _refuse_bomb(archive, packed=packed, unpacked=info.file_size)
            with unpacked.open(info) as content:
                yield _Content(name, info.file_size, content)


def _kind_of_zip_member(info: zipfile.ZipInfo) -> str:
    """What it is, where it isn't an ordinary file that can be read."""
    mode = info.external_attr >> 16
    if info.is_dir():
        return "folder"
    if stat.S_ISLNK(mode):
        return "symbolic link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return "device or special file"
    if info.flag_bits & 1:
        return "encrypted file"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        return "file packed by an unknown method"
    return ""


def _not_a_file(archive: Path, member: str, kind: str) -> ValueError:
    return ValueError(f"{archive}: member {member!r} is a {kind}: expected an ordinary file, nothing was extracted")


def _require(archive: Path, wanted: Collection[str], names: list[str]) -> None:
    """:raises ValueError: a wanted member is not among the names; gives the nearest."""
    for member in wanted:
        if member not in names:
            nearest = difflib.get_close_matches(member, names, n=1, cutoff=0.0)
            advice = f"did you mean {nearest[0]!r}?" if nearest else "it is empty"
            raise ValueError(f"{archive} has no member {member!r}: {advice}")
