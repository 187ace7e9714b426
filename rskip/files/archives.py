"""Extracts single files from untrusted archives."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Collection, Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from rskip.files.lock import one_at_a_time
from rskip.files.packed import is_damage, unpacker
from rskip.files.whole import require_space, whole_folder

if TYPE_CHECKING:
    from rskip.machine.progress import Progress

LARGEST_RATIO = 200
"""The largest ratio of unpacked to packed bytes. Text packs to between a third and a tenth of its size."""

UNSUSPICIOUS = 64 << 20
"""Bytes that an archive may unpack to at any ratio."""

BLOCK = 1 << 20

_Contents = Generator[tuple[str, int, IO[bytes]], None, list[str]]
"""Yields name, size and content of each wanted member, to be read before the next. Returns the names of all members."""


def extract(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Extracts the named members, each to folder/<member>, and nothing else.

    The archive is a zip file or a tar file, which may be compressed with gzip, bzip2, xz or zstd; its name doesn't
    matter. It is read once, to its end. The folder, which nothing else may use, appears or is replaced when all members
    are complete and the checksums in the archive match (a plain tar has none for its contents). A folder that has the
    members already stays unchanged. Other members are ignored.

    :param members: paths in the archive, such as "training/europarl-v7.de-en.en".
    :returns: the path of each extracted member.
    :raises ValueError: a path leaves the folder; a member is missing or not an ordinary file; or the archive is
        damaged, truncated, not an archive, or a bomb (over `LARGEST_RATIO`).
    :raises OSError: the disk is full (ENOSPC, for which `disk_space` adds advice).
    """
    for member in members:
        path = PurePosixPath(member)
        if member != path.as_posix() or path.is_absolute() or ".." in path.parts or not path.name or "\0" in member:
            raise ValueError(f"archive member {member!r}: expected a path such as folder/file, without '..'")
    paths = {member: folder / member for member in members}
    with one_at_a_time(folder):
        place = folder.resolve()
        if not all(path.is_file() and path.resolve() == place / member for member, path in paths.items()):
            with whole_folder(folder) as building:
                _extract(archive, members, building)
    return paths


def _extract(archive: Path, members: Collection[str], folder: Path) -> None:
    try:
        for member, size, content in _contents(archive, members):
            path = folder / member
            path.parent.mkdir(parents=True, exist_ok=True)
            require_space(path, size)
            with path.open("wb") as output:
                shutil.copyfileobj(content, output, BLOCK)
                output.flush()
                os.fsync(output.fileno())
    except Exception as error:
        # EINVAL: in a damaged zip file, the offset of a member is before the beginning. zipfile raises RuntimeErrors
        # if a member is encrypted or packed in an unknown way.
        misplaced = isinstance(error, OSError) and error.errno == errno.EINVAL
        not_archive = isinstance(error, (tarfile.TarError, zipfile.BadZipFile, RuntimeError))
        if not (misplaced or not_archive or is_damage(error)):
            raise
        raise ValueError(
            f"{archive} is damaged, truncated or not an archive ({error}): expected tar, tar.gz, tar.bz2, tar.xz or "
            "zip; remove it and download it again"
        ) from error


def _contents(archive: Path, wanted: Collection[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yields name, size and content of the wanted members, each to be read before the next."""
    from rskip.machine.progress import Progress  # an extra brings tqdm

    with archive.open("rb") as file:
        beginning = file.read(6)
        file.seek(0)
        if beginning.startswith(b"PK"):
            names = yield from _zip_contents(archive, file, wanted)
        else:
            opener = unpacker(beginning, str(archive))
            name, size = f"extract {archive.name}", archive.stat().st_size
            with (
                opener(file) if opener else contextlib.nullcontext(file) as unpacked,
                Progress(name, total=size) as bar,
            ):
                names = yield from _tar_contents(archive, _Metered(archive, file, unpacked, bar), wanted)
    for member in wanted:
        if member not in names:
            nearest = difflib.get_close_matches(member, names, n=1, cutoff=0.0)
            advice = f"did you mean {nearest[0]!r}?" if nearest else "it is empty"
            raise ValueError(f"{archive} has no member {member!r}: {advice}")


class _Metered:
    """The unpacked stream of a packed file. Stops at a bomb, and shows how much of the file has been read."""

    def __init__(self, archive: Path, packed: IO[bytes], unpacked: IO[bytes], bar: Progress) -> None:
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
            f"{archive}: {packed:,} bytes unpack to more than {unpacked:,}, over {LARGEST_RATIO} times as many: "
            "nothing was extracted"
        )


def _zip_contents(
    archive: Path, file: IO[bytes], wanted: Collection[str]
) -> _Contents:
    with zipfile.ZipFile(file) as unpacked:
        infos = {PurePosixPath(info.filename).as_posix(): info for info in unpacked.infolist()}
        for name, info in infos.items():
            if name not in wanted:
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            _require_file(archive, name, not info.is_dir() and kind in (0, stat.S_IFREG))
            # both sizes are what the archive claims, but zipfile yields no more than file_size bytes
            packed = min(info.compress_size, archive.stat().st_size)
            _refuse_bomb(archive, packed=packed, unpacked=info.file_size)
            with unpacked.open(info) as content:
                yield name, info.file_size, content
    return list(infos)


def _tar_contents(
    archive: Path, stream: _Metered, wanted: Collection[str]
) -> _Contents:
    names = []
    # "r|" never seeks. The stream is unpacked here because tarfile's gzip reader ignores checksums.
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", bufsize=BLOCK) as tar:
        for info in tar:
            name = PurePosixPath(info.name).as_posix()
            names.append(name)
            if name in wanted:
                _require_file(archive, name, info.isreg() and not info.issparse())
                yield name, info.size, cast(IO[bytes], tar.extractfile(info))
    while stream.read(BLOCK):
        pass  # up to the checksum of the packed file
    return names


def _require_file(archive: Path, member: str, ordinary: bool) -> None:
    if not ordinary:
        raise ValueError(
            f"{archive}: member {member!r} is a link, folder or device: expected a file; nothing was extracted"
        )
