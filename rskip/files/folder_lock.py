"""A folder that one process works in at a time, of this machine or of others that share the file system.

The lock is the file `lock.N` in the folder with the greatest N, the *attempt*. Who finds its holder dead makes
`lock.N+1` by link(2), which gives a name to one process alone on NFS too, and removes `lock.N`; no name is used twice.
A holder that was taken for dead and goes on finds its file gone: it looks before it writes.

Whether the holder lives its own machine's kernel knows: it holds the file by flock, and so does every process that
inherits the descriptor. flock isn't asked about another machine: file systems pass it on (NFS, CephFS), keep it to each
machine (BeeGFS, Lustre with localflock), or leave it with a machine that died (NFS 3). There the holder lives if it
renews its file's time, which the watcher compares by its own clock alone: clocks needn't agree.
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

_BEAT_SECONDS = 10.0  # from one renewal to the next
_SILENT_SECONDS = 60.0  # without one, after which a holder on another machine counts as dead
_ENDING_SECONDS = 10.0  # that the children of a killed process may take to end
_INHERITED = "RSKIP_LOCK"  # the lock file of the run that started this process
_JOB = "RSKIP_JOB"  # whose attempts wait for each other
_RELEASED = 0.0  # a lock file's time, where its holder has left
_NAME = re.compile(r"lock\.(\d+)")


class LockLost(OSError):
    """Another process has taken the folder over, or removed it."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who holds a folder.

    :param attempt: how many have held it.
    :param machine: differs between machines, and between starts of one.
    :param job: what the process works for, where several attempts at it may be started; "": none.
    """

    attempt: int
    host: str
    process: int
    machine: str
    job: str = ""

    def __str__(self) -> str:
        return str(self.process) if self.machine == this_machine() else f"{self.process} on {self.host}"


class FolderLock:
    """A lock that is held, by this process or the one that started it.

    descriptor: of the lock file, to be inherited by whatever works in the folder; None where it was not.
    """

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        self.path, self.descriptor = path, descriptor

    def check(self) -> None:
        """:raises LockLost: another process holds the folder now; nothing may be written to it any more."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)  # opening asks NFS's server; a look at the name does not
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
        """Variables by which a program that is started finds the lock, see `inherited`."""
        return {_INHERITED: str(self.path.absolute())}

    @staticmethod
    def inherited() -> FolderLock | None:
        """The lock of the run that started this process, None where it was started otherwise."""
        path = os.environ.get(_INHERITED)
        return FolderLock(Path(path)) if path else None

    def _lost(self) -> LockLost:
        folder = self.path.parent
        now = read_owner(folder)
        if now is None:
            return LockLost(f"{self.path} is gone: this process stops, since another may work in {folder}")
        return LockLost(
            f"{folder} was taken over by process {now} (attempt {now.attempt}), which had not heard of this one "
            f"({self.path.name.replace('lock.', 'attempt ')}) for a minute: this one stops"
        )


@contextmanager
def folder_lock(folder: Path, *, busy: str) -> Iterator[FolderLock]:
    """Makes the folder where it is missing and holds it, for this process and those that inherit the descriptor.

    Where its holder was killed, that one's children get a moment to end; of a holder on another machine it takes a
    minute to be sure. A holder that works for the same job (`$RSKIP_JOB`) is waited for. Within a folder whose lock
    this process has inherited it has nothing to wait for.

    :param busy: the message where another process holds the folder; "{process}" in it becomes that one's number.
    :raises ValueError: another process holds it.
    :raises OSError: the disk is full, or it can't be written to.
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
    """Who holds the folder, or held it last; None where nobody has."""
    newest = _newest(folder)
    with suppress(FileNotFoundError):
        return None if newest is None else _read(newest)
    return None


def this_machine() -> str:
    """This machine's name, and the number of its start."""
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
    """Looks at a holder until it is known whether it lives."""

    def __init__(self, busy: str) -> None:
        self._busy = busy
        self._began = time.monotonic()
        self._beats: dict[Path, tuple[float, float]] = {}  # a lock file's time, and when it was seen first
        self._said = False

    def is_free(self, path: Path) -> bool:
        """Whether the holder has left or is dead; waits a moment where neither is known yet.

        :raises ValueError: it lives.
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
                self._say(f"waiting a minute to see whether process {owner}, which holds {path.parent}, lives")
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
    """The lock file of an attempt, held by this process; None where another process has made it."""
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
        with naming(path, consequence="make room and repeat the command"):
            os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)
            os.fchmod(descriptor, 0o644)
            hold(descriptor)
            with suppress(FileExistsError, FileNotFoundError):  # the second: another holder tidied up
                os.link(temporary, path)
            made = os.fstat(descriptor).st_nlink == 2  # NFS may say that the name exists when it has just made it
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
        with suppress(OSError):  # `check` says what it means
            os.utime(lock.descriptor)


def _newest(folder: Path) -> Path | None:
    return max(_files(folder), key=_number, default=None)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("lock.*") if _NAME.fullmatch(path.name)]


def _number(path: Path) -> int:
    return int(path.name.removeprefix("lock."))


def _read(path: Path) -> Owner:
    """Of a file that a crash of its machine left damaged an owner that nobody knows.

    :raises FileNotFoundError: it has been removed.
    """
    try:
        return read_state(path, Owner, advice="")
    except SettingError:
        return Owner(attempt=_number(path), host="an unknown machine", process=0, machine="")


def _is_flocked(path: Path) -> bool | None:
    """Whether a process of this machine holds the file; None where the file system has no such locks."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(process: int) -> bool:
    """Whether a process of this machine has the number."""
    if sys.platform == "win32":  # a held file has a living holder there, and os.kill would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
