"""rskip on Windows and macOS, as far as Linux can show it: without what only POSIX or only Linux has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODEL = "preact_resnet20_1xskip.cifar10"

# A model is loaded without modules and functions that the system lacks.
SCRIPT = """
import os, signal, sys
from pathlib import Path
import filelock, torch, torch.hub, torch.nn.functional, numpy, multiprocessing, subprocess, tempfile

system = sys.argv[1]
missing = ["resource", "pwd", "grp", "termios", "tty", "posix", "syslog"]
if system == "win32":
    missing.append("fcntl")
    for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "pthread_sigmask"):
        delattr(signal, name)
    for name in ("fork", "pread", "pwrite", "fchmod", "killpg", "setsid", "getuid", "mkfifo"):
        delattr(os, name)
for name in ("sched_getaffinity", "posix_fadvise", "sched_setaffinity"):
    delattr(os, name)
sys.modules.update(dict.fromkeys(missing))
sys.platform = system

import rskip, rskip.connections, rskip.machine.workers
from rskip.machine.cores import available_cores

assert available_cores() >= 1
model = rskip.load("MODEL")
print(model.classify(torch.zeros(3, 32, 32))[0].name in model.classes)
""".replace("MODEL", MODEL)


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_model_is_loaded(system: str, environment: Callable[..., dict[str, str]]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, system], env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
