"""Writes files and folders atomically."""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rskip.files.lock import one_at_a_time
from rskip.files.names import line_name

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ABANDONED_SECONDS = 24 * 60 * 60


def real_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path without links.

    :raises OSError: a link that leads back to itself.
    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise OSError(errno.ELOOP, "a link that leads back to itself: remove it, or give another path", str(path))
    return real


def output_file(path: str | os.PathLike[str]) -> Path:
    """The path of a file that a rename may replace: what `path` leads to if it is a link, otherwise `path`.

    :raises OSError: `path` is a folder, a pipe or a device, or a link that leads back to itself.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "a pipe or a device: expected a file", str(path))
    return real_path(path) if path.is_symlink() else path


def check_apart(output: Path, data: Path) -> None:
    """:raises ValueError: `output` is the folder `data`, or lies in it."""
    place = real_path(data)
    if place in (inside := real_path(output), *inside.parents):
        raise ValueError(f"{line_name(output)} is in the folder of the data, {line_name(data)}: choose another output")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path. It becomes `path` if the block succeeds, and is removed otherwise.

    It is next to `path`, or if that is a link, next to the file that it leads to.

    The content reaches the disk before the rename, so that a crash leaves the old or the new file, never a part.
    Removes temporary files that killed processes left for the same `path` more than a day ago.

    :raises OSError: `path` is no file, see `output_file`; the block does not begin.
    """
    path = output_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path, seconds=_ABANDONED_SECONDS)
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}.partial{path.suffix}"
    temporary.touch(exist_ok=False)
    try:
        mode = temporary.stat().st_mode
        with _full_disk_named(path):
            yield temporary
        temporary.chmod(mode)  # some writers, such as safetensors', replace the file
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_left(path: Path, *, seconds: float) -> None:
    """Removes temporary files of `path` that no process has written to for so long."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.partial{re.escape(path.suffix)}")
    for left in filter(name.fullmatch, os.listdir(path.parent)):
        with suppress(OSError):  # another user's file, or one that is already gone
            if time.time() - (path.parent / left).stat().st_mtime >= seconds:
                (path.parent / left).unlink()


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """Yields an empty folder next to `output`, which becomes `output` if the block succeeds and is removed otherwise.

    Waits for another process that writes `output`, then removes remains of a killed process. Replaces an existing
    `output`: check for it beforehand, within `one_at_a_time(output)`.
    """
    building = output.with_name(f".{output.name}.building")
    with one_at_a_time(output):
        recover(output)
        if building.exists():
            shutil.rmtree(building)
        building.mkdir(parents=True)
        try:
            with _full_disk_named(output):
                yield building
            put_in_place(building, output)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise


def put_in_place(building: Path, output: Path) -> None:
    """Renames a folder to `output` and replaces an existing one. At any moment, one of the two is complete."""
    replaced = _replaced(output)
    recover(output)
    try:
        if output.exists():
            output.rename(replaced)
        building.rename(output)
    except BaseException:
        recover(output)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def recover(output: Path) -> None:
    """Cleans up after a process that was killed in `put_in_place`: the old folder becomes the output, or is removed."""
    replaced = _replaced(output)
    if not replaced.exists():
        return
    if output.exists():
        shutil.rmtree(replaced)
    else:
        replaced.rename(output)


def _replaced(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")


@contextmanager
def _full_disk_named(path: Path) -> Iterator[None]:
    """Adds `path` to an error of a full disk that names no file, as errors of write do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
