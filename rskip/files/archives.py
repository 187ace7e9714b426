"""Extracts single files from archives."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from rskip.files.lock import one_at_a_time
from rskip.files.packed import is_damage, open_unpacked
from rskip.files.whole import whole_folder
from rskip.machine.progress import Progress
from rskip.settings.errors import nearest

BLOCK = 1 << 20


def extract(archive: Path, members: Collection[str], folder: Path) -> dict[str, Path]:
    """Extracts the named members, each to folder/<member>, and nothing else.

    The archive is a zip file or a tar file, which may be compressed with gzip, bzip2, xz or zstd; its name doesn't
    matter. It is read once, to its end. The folder, which nothing else may use, appears or is replaced when all members
    are complete and the checksums in the archive match (a plain tar has none for its contents). A folder that has the
    members already stays unchanged.

    :param members: relative paths in the archive, such as "training/europarl-v7.de-en.en".
    :returns: the path of each extracted member.
    :raises ValueError: a member is missing or not an ordinary file; or the archive is damaged.
    """
    paths = {member: folder / member for member in members}
    with one_at_a_time(folder):
        if not all(path.is_file() for path in paths.values()):
            with whole_folder(folder) as building:
                names = _extract(archive, members, building)
                for member in members:
                    if member not in names:
                        advice = f"did you mean {near[0]!r}?" if (near := nearest(member, names)) else "it has others"
                        raise ValueError(f"{archive} has no file {member!r}: {advice}")
    return paths


def _extract(archive: Path, members: Collection[str], folder: Path) -> list[str]:
    """Extracts the members to `folder`. Returns the names of all files in the archive."""
    names = []
    try:
        with Progress(f"extract {archive.name}") as bar:
            for name, size, content in _zip_files(archive) if zipfile.is_zipfile(archive) else _tar_files(archive):
                names.append(name)
                if name not in members:
                    bar.update(size)
                    continue
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as output:
                    while block := content.read(BLOCK):
                        output.write(block)
                        bar.update(len(block))
                    output.flush()
                    os.fsync(output.fileno())
    except Exception as error:
        if not isinstance(error, (tarfile.TarError, zipfile.BadZipFile, NotImplementedError)) and not is_damage(error):
            raise
        raise ValueError(
            f"{archive} is damaged, truncated or not an archive ({error}): expected tar, tar.gz, tar.bz2, tar.xz or "
            "zip; remove it and download it again"
        ) from error
    return names


def _zip_files(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(archive) as unpacked:
        for info in unpacked.infolist():
            if not info.is_dir() and stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG):
                with unpacked.open(info) as content:
                    yield PurePosixPath(info.filename).as_posix(), info.file_size, content


def _tar_files(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    # "r|" never seeks. open_unpacked compares the checksum of the packed file, which tarfile ignores.
    with open_unpacked(archive) as unpacked, tarfile.open(fileobj=unpacked, mode="r|", bufsize=BLOCK) as tar:
        for info in tar:
            if info.isreg() and not info.issparse():
                yield PurePosixPath(info.name).as_posix(), info.size, cast(IO[bytes], tar.extractfile(info))
        while unpacked.read(BLOCK):
            pass  # up to the checksum
