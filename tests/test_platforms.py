"""rskip on Windows and macOS, as far as Linux can show it: without what only POSIX or only Linux has."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODEL = "preact_resnet20_1xskip.cifar10"
WINDOWS_BYTE = 1 << 30  # what `rskip.files.flock` locks

# A model is loaded and `one_at_a_time` waits, without modules and functions that the system lacks. Windows' locks are
# POSIX's of the same byte, and an open file can't be removed.
SCRIPT = """
import fcntl, os, signal, sys, types
from pathlib import Path
import torch, torch.hub, torch.nn.functional, numpy, multiprocessing, subprocess, tempfile

system, output = sys.argv[1:]
missing = ["resource", "pwd", "grp", "termios", "tty", "posix", "syslog"]
if system == "win32":
    missing.append("fcntl")
    msvcrt = types.ModuleType("msvcrt")
    msvcrt.LK_NBLCK = 2

    def locking(descriptor, mode, count):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    def unlink(path, missing_ok=False, unlink=Path.unlink):
        held = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if os.path.exists(each)]
        if os.path.realpath(path) in held:
            raise PermissionError(13, "it is open", str(path))
        unlink(path, missing_ok)

    msvcrt.locking, Path.unlink = locking, unlink
    sys.modules["msvcrt"] = msvcrt
    for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "pthread_sigmask"):
        delattr(signal, name)
    for name in ("fork", "pread", "pwrite", "fchmod", "killpg", "setsid", "getuid", "mkfifo"):
        delattr(os, name)
for name in ("sched_getaffinity", "posix_fadvise", "sched_setaffinity"):
    delattr(os, name)
sys.modules.update(dict.fromkeys(missing))
sys.platform = system

import rskip, rskip.connections, rskip.machine.workers
from rskip.files.lock import one_at_a_time
from rskip.machine.environment import available_cores

with one_at_a_time(Path(output)):
    assert available_cores() >= 1
    model = rskip.load("MODEL")
    print(model.classify(torch.zeros(3, 32, 32))[0].name in model.classes)
""".replace("MODEL", MODEL)


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_model_is_loaded_and_a_lock_waited_for(
    system: str, tmp_path: Path, environment: Callable[..., dict[str, str]]
) -> None:
    path = tmp_path / ".output.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"123")
    if system == "win32":
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, WINDOWS_BYTE)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, system, str(tmp_path / "output")],
        env=environment(PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    waiting = process.stderr.readline()
    os.close(descriptor)
    output, rest = process.communicate()
    assert waiting == f"waiting for another process (123), which is making {tmp_path / 'output'}\n", waiting + rest
    assert (process.returncode, output, rest) == (0, "True\n", "")
    assert not path.exists()
