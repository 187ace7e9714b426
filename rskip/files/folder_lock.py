"""Locks a folder for one process at a time, across machines that share the file system.

The lock is a lease (`filelock.SoftFileLease`): the file `lock`, whose holder renews its time. On the holder's machine
the lease ends with the holder's process. For another machine it ends when no renewal was seen for a minute, by that
machine's own clock. A holder that was wrongly taken for dead finds another mark in the file, because it looks before it
writes. The file `owner.json` says who holds the folder, or held it last.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path

import filelock  # versions before 4, which torch.hub's users may have, lack SoftFileLease

from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.settings.errors import SettingError

_SECONDS, _BEAT_SECONDS = 60.0, 10.0  # how long a lease lives without a renewal, and between two renewals
_AGAIN_SECONDS = 1.0  # between two looks at a holder
_INHERITED = "RSKIP_LOCK"  # the mark and the lock file of the run that started this process
_JOB = "RSKIP_JOB"  # the job whose attempts wait for each other


class LockLost(OSError):
    """Raised if another process has taken over the folder or removed it."""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The holder of a folder.

    :param attempt: the number of holders so far.
    :param since: when it took the folder.
    :param job: the job of the process, of which several attempts may be started; "": none.
    """

    attempt: int
    host: str
    process: int
    since: str
    job: str = ""

    def __str__(self) -> str:
        return str(self.process) if self.host == socket.gethostname() else f"{self.process} on {self.host}"


@dataclass(frozen=True)
class FolderLock:
    """A lock that this process or its parent holds.

    path: the lock file. mark: the holder's mark in it.
    """

    path: Path
    mark: str

    def check(self) -> None:
        """:raises LockLost: another process holds the folder now, and this one must not write to it any more."""
        for pause in (_AGAIN_SECONDS, 0):  # a process that tries to take over moves the file for a moment
            if (found := filelock.SoftFileLease(self.path).owner) is not None and found.token == self.mark:
                return
            time.sleep(pause)
        folder, now = self.path.parent, read_owner(self.path.parent)
        if found is None or now is None:
            raise LockLost(f"{self.path} is gone: this process stops, because another may work in {folder}")
        raise LockLost(
            f"{folder} was taken over by process {now} (attempt {now.attempt}), which saw no sign of life of this "
            "process for a minute: this process stops"
        )

    def environment(self) -> dict[str, str]:
        """Environment variables by which a started program finds the lock; see `inherited`."""
        return {_INHERITED: f"{self.mark} {self.path.absolute()}"}

    @staticmethod
    def inherited() -> FolderLock | None:
        """The lock of the run that started this process; None if no run did."""
        mark, _, path = os.environ.get(_INHERITED, "").partition(" ")
        return FolderLock(Path(path), mark) if path else None


@contextmanager
def folder_lock(folder: Path, *, busy: str) -> Iterator[FolderLock]:
    """Creates the folder if it is missing and locks it for this process and the programs that it starts.

    If the holder is on another machine, this takes a minute. Waits for a holder that works for the same job
    (`$RSKIP_JOB`). Doesn't lock a folder within one whose lock this process has inherited.

    :param busy: the error message if another process holds the folder; "{process}" in it becomes its number.
    :raises ValueError: another process holds the folder.
    :raises OSError: the disk is full, or can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    around = FolderLock.inherited()
    if around is not None and folder.absolute().is_relative_to(around.path.parent):
        yield around
        return
    path = folder / "lock"
    lease = filelock.SoftFileLease(path, lease_duration=_SECONDS, heartbeat_interval=_BEAT_SECONDS, thread_local=False)
    _acquire(lease, folder, busy)
    try:
        before = read_owner(folder)
        owner = Owner(
            attempt=1 if before is None else before.attempt + 1,
            host=socket.gethostname(),
            process=os.getpid(),
            since=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            job=os.environ.get(_JOB, ""),
        )
        with atomic_file(_file(folder)) as file:
            file.write_text(dumps(asdict(owner)), encoding="utf-8")
        assert lease.token is not None
        yield FolderLock(path, lease.token)
    finally:
        lease.release()


def read_owner(folder: Path) -> Owner | None:
    """The current or last holder of the folder; None if it had none, or a crash damaged the file that names it."""
    with suppress(FileNotFoundError, SettingError):
        return read_state(_file(folder), Owner, advice="")
    return None


def _file(folder: Path) -> Path:
    return folder / "owner.json"


def _acquire(lease: filelock.SoftFileLease, folder: Path, busy: str) -> None:
    """Acquires the lease as soon as its holder has left or is dead.

    :raises ValueError: the holder is alive.
    """
    first: float | None = None  # the time of the lock file when it was first seen
    said = ""
    while True:
        with suppress(filelock.Timeout):
            lease.acquire(blocking=False)
            return
        owner = read_owner(folder)
        with suppress(FileNotFoundError):
            beat = os.stat(lease.lock_file).st_mtime
            first = beat if first is None else first
            if owner is not None and owner.job and owner.job == os.environ.get(_JOB):
                line = f"waiting for process {owner}, an earlier attempt"
            elif beat != first or (owner is not None and _runs_here(owner, since=beat)):
                raise ValueError(busy.replace("{process}", str(owner or "unknown")))
            else:
                line = f"waiting a minute to see whether process {owner}, which holds {folder}, is alive"
            if not said:
                print(said := line, flush=True)
        time.sleep(min(_AGAIN_SECONDS, _SECONDS / 4))


def _runs_here(owner: Owner, *, since: float) -> bool:
    """Whether a process of this number runs on this machine, and has given a sign of life in the last minute."""
    if owner.host != socket.gethostname() or time.time() - since > _SECONDS:
        return False
    if sys.platform != "win32":  # where os.kill would end it
        try:
            os.kill(owner.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # another user's
            return True
    return True
