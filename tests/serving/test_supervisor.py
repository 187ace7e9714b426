"""The supervisor of the server's processes, with servers and workers that compute nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor needs Linux")
BEGIN = """
import os, signal, socket, time
from rskip.serving.supervisor import supervise

def say(text):
    print(text, flush=True)

def work(server):
    server.sendall(b"here")
    time.sleep(100)
"""


def started(root: Path, code: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_fork_that_fails_is_told_to_the_server_which_can_ask_again(root: Path) -> None:
    code = """
fork, forks = os.fork, []

def sometimes():
    forks.append(1)
    if len(forks) == 2:
        raise BlockingIOError(11, "no more processes")
    return fork()

def serve(hire):
    try:
        hire()
    except OSError as error:
        say(error)
    say(hire().recv(4))

os.fork = sometimes
supervise(serve, work, at_end=lambda: None)
"""
    with started(root, code) as process:
        output, errors = process.communicate(timeout=60)
    assert output == "the supervisor could not start a worker process\nb'here'\n"
    assert (process.returncode, errors) == (0, "can't start a worker process: no more processes\n")


def test_the_server_kills_a_worker_and_a_worker_that_hangs_does_not_outlive_the_server(root: Path) -> None:
    code = """
def serve(hire):
    other, worker = hire(), hire()
    say(worker.recv(4) + other.recv(4))
    hire.kill(worker.fileno())
    say(worker.recv(4))

supervise(serve, work, at_end=lambda: None)
"""
    with started(root, code) as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "b'herehere'\nb''\n", "")


def test_a_signal_before_a_killed_server_is_replaced_ends_the_supervisor(root: Path) -> None:
    code = """
def serve(hire):
    say("serving")
    os.kill(os.getpid(), signal.SIGKILL)

supervise(serve, work, at_end=lambda: say("ending"))
"""
    with started(root, code) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "the server was killed by signal 9: starting it again\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "serving\nending\n")
