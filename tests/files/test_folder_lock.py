"""Folders that one process works in: on this machine, and beside others that share the file system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rskip.files import folder_lock as module
from rskip.files.folder_lock import FolderLock, LockLost, folder_lock, read_owner

Patch = pytest.MonkeyPatch
BUSY = "in use by {process}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: Patch) -> None:
    """A holder renews its lock ten times before it counts as dead."""
    for name, seconds in (("_SECONDS", 0.5), ("_BEAT_SECONDS", 0.05), ("_AGAIN_SECONDS", 0.1)):
        monkeypatch.setattr(module, name, seconds)


def holding(folder: Path, *, then: str) -> subprocess.Popen[str]:
    """A process that holds a folder, says so, and goes on with `then`."""
    code = f"""
import os, signal, sys
from pathlib import Path
from rskip.files import folder_lock as module
module._SECONDS, module._BEAT_SECONDS, module._AGAIN_SECONDS = 0.5, 0.05, 0.1
with module.folder_lock(Path({str(folder)!r}), busy="") as lock:
    print("held", flush=True)
    {then}
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Writes the files of a holder on another machine, which renews its lock until `elsewhere(alive=False)`."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(0.05):
            os.utime(tmp_path / "lock")

    thread = threading.Thread(target=renew)

    def hold(*, alive: bool, job: str = "") -> None:
        if alive:
            mark = "filelock/2\npid=7\nhost=another\nmode=lease\ntoken=0123\nduration=0.5\n"
            (tmp_path / "lock").write_text(mark)
            owner = {"attempt": 3, "host": "another", "process": 7, "since": "2026-11-28", "job": job}
            (tmp_path / "owner.json").write_text(json.dumps(owner))
            thread.start()
        else:
            ended.set()
            thread.join()

    yield hold
    ended.set()


def test_a_held_folder_is_refused_with_the_holders_number_and_a_free_one_is_the_next_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "new/folder"
    for attempt in (1, 2, 3):
        with folder_lock(folder, busy="") as lock:
            lock.check()
            owner = read_owner(folder)
            assert owner is not None and (owner.attempt, owner.process) == (attempt, os.getpid())
            assert owner.since.startswith("20")
            message = rf"^in use by {os.getpid()}$"
            with pytest.raises(ValueError, match=message), folder_lock(folder, busy=BUSY):
                pass
        assert os.listdir(folder) == ["owner.json"]
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


def test_the_folder_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    process = holding(tmp_path, then="os.kill(os.getpid(), signal.SIGKILL)")
    process.wait()
    with folder_lock(tmp_path, busy=BUSY):
        owner = read_owner(tmp_path)
    assert owner is not None and owner.attempt == 2


def test_a_holder_on_another_machine_is_refused_at_its_next_sign_of_life(
    tmp_path: Path, elsewhere: Callable[..., None]
) -> None:
    elsewhere(alive=True)
    with pytest.raises(ValueError, match="^in use by 7 on another$"), folder_lock(tmp_path, busy=BUSY):
        pass


def test_a_holder_on_another_machine_that_gives_no_sign_of_life_is_dead(
    tmp_path: Path, elsewhere: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere(alive=True)
    elsewhere(alive=False)
    with folder_lock(tmp_path, busy=BUSY) as lock:
        lock.check()
        with pytest.raises(LockLost, match=rf"was taken over by process {os.getpid()} \(attempt 4\)"):
            FolderLock(tmp_path / "lock", "0123").check()
    assert f"whether process 7 on another, which holds {tmp_path}, is alive" in capsys.readouterr().out


@pytest.mark.parametrize("same_job", [True, False])
def test_an_attempt_at_the_same_job_is_waited_for(
    tmp_path: Path, elsewhere: Callable[..., None], monkeypatch: Patch, same_job: bool
) -> None:
    elsewhere(alive=True, job="sweep")
    monkeypatch.setenv("RSKIP_JOB", "sweep" if same_job else "other")
    if same_job:
        threading.Timer(0.6, lambda: elsewhere(alive=False)).start()
        with folder_lock(tmp_path, busy=BUSY):
            pass
    else:
        with pytest.raises(ValueError, match="^in use by "), folder_lock(tmp_path, busy=BUSY):
            pass


def test_a_process_that_lost_its_lock_does_not_write(tmp_path: Path) -> None:
    went_on = "sys.stdin.readline()\n    try: lock.check()\n    except module.LockLost as error: print(error)"
    process = holding(tmp_path, then=went_on)
    process.send_signal(signal.SIGSTOP)
    (tmp_path / "lock").unlink()
    with folder_lock(tmp_path, busy=BUSY):
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate("\n")
    assert said.startswith(f"{tmp_path} was taken over by process {os.getpid()} (attempt 2), which saw no sign of life")
    with folder_lock(tmp_path, busy=BUSY) as lock:
        lock.path.unlink()
        with pytest.raises(LockLost, match=rf"^{lock.path} is gone: this process stops"):
            lock.check()


def test_a_damaged_owner_is_nobody(tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_text('{"attempt": ')
    with folder_lock(tmp_path, busy=BUSY):
        owner = read_owner(tmp_path)
    assert owner is not None and owner.attempt == 1


def test_within_a_run_its_programs_work_in_its_folder_without_a_lock_of_their_own(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    assert FolderLock.inherited() is None
    with folder_lock(tmp_path / "run", busy="") as outer:
        for name, value in outer.environment().items():
            monkeypatch.setenv(name, value)
        with folder_lock(tmp_path / "run/training", busy=BUSY) as inner, folder_lock(tmp_path / "elsewhere", busy=""):
            assert os.listdir(tmp_path / "run/training") == [] and "lock" in os.listdir(tmp_path / "elsewhere")
            inner.check()
            outer.path.unlink()
            with pytest.raises(LockLost):
                inner.check()
