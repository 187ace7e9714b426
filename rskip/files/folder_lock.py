"""Locks a folder for one process at a time, across machines that share the file system.

The lock is the file `lock.N` in the folder with the greatest N, the *attempt*. A process that finds the holder dead
creates `lock.N+1` with link(2), which succeeds for only one process, also on NFS. It then removes `lock.N`. No name is
used twice. A holder that was wrongly taken for dead finds its file gone, because it checks the file before it writes.

On the holder's own machine, the kernel knows whether it lives: the holder has a flock on the file, and so does every
process that inherits the descriptor. flock says nothing about other machines. File systems may share it (NFS, CephFS),
keep it per machine (BeeGFS, Lustre with localflock), or leave it with a dead machine (NFS 3). For another machine, the
holder is alive if it renews the modification time of its file. The watcher measures intervals with its own clock, so
that the clocks of the machines needn't agree.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from rskip.files.flock import hold, is_held
from rskip.files.state import read_state
from rskip.files.whole import naming
from rskip.settings.errors import SettingError

_BEAT_SECONDS = 10.0  # between two renewals
_SILENT_SECONDS = 60.0  # without a renewal, after which a holder on another machine counts as dead
_ENDING_SECONDS = 10.0  # for the children of a killed process to end
_INHERITED = "RSKIP_LOCK"  # the lock file of the run that started this process
_JOB = "RSKIP_JOB"  # the job whose attempts wait for each other
_RELEASED = 0.0  # the time of a lock file whose holder has left
_NAME = re.compile(r"lock\.(\d+)")


class LockLost(OSError):
    """Raised if another process has taken over the folder or removed it."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The holder of a folder.

    :param attempt: the number of holders so far.
    :param machine: differs between machines, and between starts of a machine.
    :param job: the job of the process, of which several attempts may be started; "": none.
    """

    attempt: int
    host: str
    process: int
    machine: str
    job: str = ""

    def __str__(self) -> str:
        return str(self.process) if self.machine == this_machine() else f"{self.process} on {self.host}"


class FolderLock:
    """A lock that this process or its parent holds.

    descriptor: that of the lock file, which processes that work in the folder inherit; None if it was not inherited.
    """

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self.path, self.descriptor = path, descriptor

    def check(self) -> None:
        """:raises LockLost: another process holds the folder now, and this one must not write to it any more."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)  # opening asks the NFS server, a stat does not
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            raise self._lost() from None
        try:
            if os.fstat(descriptor).st_nlink == 0:
                raise self._lost()
        finally:
            os.close(descriptor)

    def environment(self) -> dict[str, str]:
        """Environment variables by which a started program finds the lock; see `inherited`."""
        return {_INHERITED: str(self.path.absolute())}

    @staticmethod
    def inherited() -> FolderLock | None:
        """The lock of the run that started this process; None if no run did."""
        path = os.environ.get(_INHERITED)
        return FolderLock(Path(path)) if path else None

    def _lost(self) -> LockLost:
        folder = self.path.parent
        now = read_owner(folder)
        if now is None:
            return LockLost(f"{self.path} is gone: this process stops, because another may work in {folder}")
        return LockLost(
            f"{folder} was taken over by process {now} (attempt {now.attempt}), which saw no sign of life of this "
            f"process ({self.path.name.replace('lock.', 'attempt ')}) for a minute: this process stops"
        )


@contextmanager
def folder_lock(folder: Path, *, busy: str) -> Iterator[FolderLock]:
    """Creates the folder if it is missing and locks it for this process and those that inherit the descriptor.

    If the holder was killed, its children get a moment to end; for a holder on another machine, this takes a minute.
    Waits for a holder that works for the same job (`$RSKIP_JOB`). Doesn't wait in a folder whose lock this process has
    inherited.

    :param busy: the error message if another process holds the folder; "{process}" in it becomes its number.
    :raises ValueError: another process holds the folder.
    :raises OSError: the disk is full, or can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    around = FolderLock.inherited()
    if around is not None and folder.absolute().is_relative_to(around.path.parent):
        yield around
        return
    lock = _take(folder, busy)
    ended = threading.Event()
    beat = threading.Thread(target=_beat, args=(lock, ended), daemon=True)
    beat.start()
    try:
        yield lock
    finally:
        ended.set()
        beat.join()
        assert lock.descriptor is not None
        with suppress(OSError):
            os.utime(lock.descriptor, (_RELEASED, _RELEASED))
        os.close(lock.descriptor)


def read_owner(folder: Path) -> Owner | None:
    """The current or last holder of the folder; None if it had none."""
    newest = _newest(folder)
    with suppress(FileNotFoundError):
        return None if newest is None else _read(newest)
    return None


def this_machine() -> str:
    """The name of this machine and the ID of its last start."""
    return _machine()


@cache
def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else platform.system()}"


def _take(folder: Path, busy: str) -> FolderLock:
    watch = _Watch(busy)
    while True:
        newest = _newest(folder)
        try:
            if newest is not None and not watch.is_free(newest):
                continue
        except FileNotFoundError:  # another process was faster
            continue
        attempt = 1 if newest is None else _number(newest) + 1
        if (lock := _make(folder, attempt)) is not None:
            return lock


class _Watch:
    """Watches a holder until it is known whether it is alive."""

    def __init__(self, busy: str) -> None:
        self._busy = busy
        self._began = time.monotonic()
        self._beats: dict[Path, tuple[float, float]] = {}  # the time of a lock file, and when it was first seen
        self._said = False

    def is_free(self, path: Path) -> bool:
        """Whether the holder has left or is dead; waits a moment if this is not known yet.

        :raises ValueError: the holder is alive.
        """
        owner = _read(path)
        here = owner.machine == this_machine()
        held = _is_flocked(path) if here else None
        if held is not None:
            now = time.monotonic()
            if held and (_is_alive(owner.process) or now > self._began + _ENDING_SECONDS):
                self._refuse(owner)
            pause = 0.1 if held else 0.0
        else:
            beat, now = path.stat().st_mtime, time.monotonic()
            before, since = self._beats.setdefault(path, (beat, now))
            if beat != before:
                self._beats[path] = (beat, now)
                self._refuse(owner)
            held = beat != _RELEASED and now < since + _SILENT_SECONDS
            pause = 1.0
            if held:
                self._say(f"waiting a minute to see whether process {owner}, which holds {path.parent}, is alive")
        if held:
            time.sleep(min(pause, _SILENT_SECONDS / 4))
        return not held

    def _refuse(self, owner: Owner) -> None:
        if owner.job and owner.job == os.environ.get(_JOB):
            self._say(f"waiting for process {owner}, an earlier attempt")
            return
        raise ValueError(self._busy.replace("{process}", str(owner)))

    def _say(self, line: str) -> None:
        if not self._said:
            print(line, flush=True)
        self._said = True


def _make(folder: Path, attempt: int) -> FolderLock | None:
    """Creates and locks the lock file of an attempt; None if another process has created it."""
    owner = Owner(
        attempt=attempt,
        host=socket.gethostname(),
        process=os.getpid(),
        machine=this_machine(),
        job=os.environ.get(_JOB, ""),
    )
    path = folder / f"lock.{attempt}"
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".lock.")
    try:
        with naming(path, consequence="free some space and repeat the command"):
            os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)
            os.fchmod(descriptor, 0o644)
            hold(descriptor)
            with suppress(FileExistsError, FileNotFoundError):  # FileNotFoundError: another holder removed it
                os.link(temporary, path)
            made = os.fstat(descriptor).st_nlink == 2  # NFS may report a name that this call created
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)
    if not made:
        os.close(descriptor)
        return None
    for other in (*_files(folder), *folder.glob(".lock.*")):
        if other.name.startswith(".") or _number(other) < attempt:
            other.unlink(missing_ok=True)
    return FolderLock(path, descriptor)


def _beat(lock: FolderLock, ended: threading.Event) -> None:
    assert lock.descriptor is not None
    while not ended.wait(_BEAT_SECONDS):
        with suppress(OSError):  # `check` raises the error
            os.utime(lock.descriptor)


def _newest(folder: Path) -> Path | None:
    return max(_files(folder), key=_number, default=None)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("lock.*") if _NAME.fullmatch(path.name)]


def _number(path: Path) -> int:
    return int(path.name.removeprefix("lock."))


def _read(path: Path) -> Owner:
    """Reads the owner from a lock file. A file that a crash damaged gives an unknown owner.

    :raises FileNotFoundError: the file has been removed.
    """
    try:
        return read_state(path, Owner, advice="")
    except SettingError:
        return Owner(attempt=_number(path), host="an unknown machine", process=0, machine="")


def _is_flocked(path: Path) -> bool | None:
    """Whether a process of this machine holds the lock; None if the file system has no such locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(process: int) -> bool:
    """Whether a process of this number runs on this machine."""
    if sys.platform == "win32":  # on Windows a locked file has a living holder, and os.kill would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
