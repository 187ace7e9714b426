"""Folders that one process works in: on this machine, and beside others that share the file system."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.files import folder_lock as module
from rskip.files.folder_lock import FolderLock, LockLost, folder_lock, read_owner

Patch = pytest.MonkeyPatch
BUSY = "in use by {process}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: Patch) -> None:
    """A holder renews its lock ten times before it counts as dead."""
    monkeypatch.setattr(module, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.5)


@pytest.fixture
def elsewhere(monkeypatch: Patch) -> Callable[[], None]:
    """Makes this process one of another machine than what has locked before."""
    return lambda: monkeypatch.setattr(module, "_machine", lambda: "another")


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def holding(folder: Path, *, then: str, **environment: str) -> subprocess.Popen[str]:
    """A process that holds a folder, says so, and goes on with `then`."""
    code = f"""
import os, signal, sys, time
from pathlib import Path
from rskip.files import folder_lock as module
module._BEAT_SECONDS = 0.05
with module.folder_lock(Path({str(folder)!r}), busy="") as lock:
    print("held", flush=True)
    {then}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_a_held_folder_is_refused_with_the_holders_number_and_a_free_one_is_the_next_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    for attempt in (1, 2, 3):
        with folder_lock(folder, busy="") as lock:
            lock.check()
            owner = read_owner(folder)
            assert owner is not None and (owner.attempt, owner.process) == (attempt, os.getpid())
            assert locks(folder) == [f"lock.{attempt}"], "the earlier ones are gone"
            message = rf"^in use by {os.getpid()}$"
            with pytest.raises(ValueError, match=message), folder_lock(folder, busy=BUSY):
                pass
    assert read_owner(tmp_path) is None


def test_of_many_that_find_it_free_one_gets_it(tmp_path: Path) -> None:
    begin, ends, refused, held = threading.Barrier(8), threading.Event(), [], []

    def contend() -> None:
        begin.wait()
        try:
            with folder_lock(tmp_path, busy=BUSY):
                held.append(1)
                ends.wait()
        except ValueError as error:
            refused.append(str(error))
            if len(refused) == 7:
                ends.set()

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == [1] and refused == [f"in use by {os.getpid()}"] * 7
    assert locks(tmp_path) == ["lock.1"]


def test_what_a_killed_process_started_is_waited_for(tmp_path: Path) -> None:
    """A process locks, starts a child that ends when told to, and is killed: the child holds the lock."""
    child = f"while [ ! -e {tmp_path}/end ]; do sleep 0.01; done; touch {tmp_path}/ended"
    start = f"import subprocess; subprocess.Popen(['sh', '-c', {child!r}], pass_fds=[lock.descriptor])"
    process = holding(tmp_path / "out", then=f"{start}; os.kill(os.getpid(), signal.SIGKILL)")
    process.wait()
    threading.Timer(0.1, (tmp_path / "end").touch).start()
    with folder_lock(tmp_path / "out", busy=BUSY):
        assert (tmp_path / "ended").exists()


def test_a_folder_whose_holder_was_killed_is_refused_while_what_it_started_goes_on(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "_ENDING_SECONDS", 0.1)
    start = "import subprocess; subprocess.Popen(['sh', '-c', 'read line'], stdin=0, pass_fds=[lock.descriptor])"
    process = holding(tmp_path, then=f"{start}; os.kill(os.getpid(), signal.SIGKILL)")
    process.wait()
    with pytest.raises(ValueError, match=f"^in use by {process.pid}$"), folder_lock(tmp_path, busy=BUSY):
        pass
    process.communicate("\n")


def test_a_holder_on_another_machine_is_refused_at_its_next_sign_of_life(
    tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    with folder_lock(tmp_path, busy="") as lock:
        elsewhere()
        message = rf"^in use by {os.getpid()} on "
        with pytest.raises(ValueError, match=message), folder_lock(tmp_path, busy=BUSY):
            pass
        lock.check()


def test_a_holder_on_another_machine_that_gives_no_sign_of_life_is_dead_and_does_not_write_when_it_wakes(
    tmp_path: Path, elsewhere: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    went_on = "sys.stdin.readline()\n    try: lock.check()\n    except module.LockLost as error: print(error)"
    process = holding(tmp_path, then=went_on)
    process.send_signal(signal.SIGSTOP)
    elsewhere()
    began = time.monotonic()
    with folder_lock(tmp_path, busy=BUSY):
        assert time.monotonic() - began >= 0.5
        assert locks(tmp_path) == ["lock.2"]
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate("\n")
        owner = read_owner(tmp_path)
    assert owner is not None and owner.attempt == 2
    assert said == (
        f"{tmp_path} was taken over by process {os.getpid()} on {owner.host} (attempt 2), which saw no sign of life of "
        "this process (attempt 1) for a minute: this process stops\n"
    )
    assert f"waiting a minute to see whether process {process.pid} on " in capsys.readouterr().out


def test_what_was_released_on_another_machine_is_free_at_once(
    tmp_path: Path, elsewhere: Callable[[], None], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "_SILENT_SECONDS", 3600)
    with folder_lock(tmp_path, busy=""):
        pass
    elsewhere()
    with folder_lock(tmp_path, busy=BUSY):
        assert locks(tmp_path) == ["lock.2"]


@pytest.mark.parametrize("same_job", [True, False])
def test_an_attempt_at_the_same_job_is_waited_for(
    tmp_path: Path, elsewhere: Callable[[], None], monkeypatch: Patch, same_job: bool
) -> None:
    process = holding(tmp_path, then="sys.stdin.readline()", RSKIP_JOB="sweep")
    monkeypatch.setenv("RSKIP_JOB", "sweep" if same_job else "other")
    elsewhere()
    assert process.stdin
    if same_job:
        threading.Timer(0.3, lambda: process.communicate("\n")).start()
        with folder_lock(tmp_path, busy=BUSY):
            assert process.wait() == 0
    else:
        with pytest.raises(ValueError, match="^in use by "), folder_lock(tmp_path, busy=BUSY):
            pass
        process.communicate("\n")


def test_without_flock_the_signs_of_life_decide_on_one_machine_too(tmp_path: Path, monkeypatch: Patch) -> None:
    def unsupported(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    process = holding(tmp_path, then="sys.stdin.readline()")
    with pytest.raises(ValueError, match=f"^in use by {process.pid}$"), folder_lock(tmp_path, busy=BUSY):
        pass
    process.kill()
    process.communicate()
    with folder_lock(tmp_path, busy=BUSY):
        assert locks(tmp_path) == ["lock.2"]


def test_a_damaged_or_removed_lock_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "lock.7").write_text("")
    (tmp_path / ".lock.half").touch()
    with folder_lock(tmp_path, busy=BUSY) as lock:
        assert locks(tmp_path) == ["lock.8"]
        lock.path.unlink()
        with pytest.raises(LockLost, match=rf"^{lock.path} is gone: this process stops"):
            lock.check()


def test_within_a_run_its_programs_work_in_its_folder_without_a_lock_of_their_own(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    assert FolderLock.inherited() is None
    with folder_lock(tmp_path / "run", busy="") as outer:
        for name, value in outer.environment().items():
            monkeypatch.setenv(name, value)
        with folder_lock(tmp_path / "run/training", busy=BUSY) as inner, folder_lock(tmp_path / "elsewhere", busy=""):
            assert locks(tmp_path / "run/training") == [] and locks(tmp_path / "elsewhere") == ["lock.1"]
            inner.check()
            outer.path.unlink()
            with pytest.raises(LockLost):
                inner.check()
