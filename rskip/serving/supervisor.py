"""Runs the server and its workers in processes of their own, and replaces those that are killed.

The supervisor loads the models once and starts no threads, so it can fork at any time: a new process has the models at
once, and all processes share their memory until they write to it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

Hire = Callable[[], socket.socket]
SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PAUSE = 1.0  # seconds before a server that was killed is replaced


def supervise(serve: Callable[[Hire], None], work: Callable[[socket.socket], None]) -> None:
    """Runs a server until it ends by itself, which it does after SIGTERM or Ctrl-C. Linux only.

    :param serve: runs the server, by `run_server`. Its argument starts a worker and returns the socket to it.
    :param work: runs a worker until the socket to the server is closed.
    :raises SystemExit: the server failed.
    """
    ending, server = False, 0
    workers: set[int] = set()

    def end(*_: object) -> None:
        nonlocal ending
        ending = True
        if server:
            os.kill(server, signal.SIGTERM)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        while True:
            ours, theirs = socket.socketpair()
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server unblocks them when it has its handlers
            server = _fork(partial(_serve, serve, ours, theirs))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            theirs.close()
            with ours, suppress(OSError):  # the server was killed
                while ours.recv(1):
                    _reap(workers, os.WNOHANG)
                    workers.add(_hire_worker(ours, work))
            code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
            server = 0
            if code >= 0 or ending:
                break
            print(f"the server was killed by signal {-code}: starting it again", file=sys.stderr, flush=True)
            time.sleep(_PAUSE)
        _reap(workers, 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise SystemExit(abs(code))


def _serve(serve: Callable[[Hire], None], ours: socket.socket, theirs: socket.socket) -> None:
    ours.close()
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)
    lock = threading.Lock()

    def hire() -> socket.socket:
        with lock:
            theirs.sendall(b"w")
            _, numbers, _, _ = socket.recv_fds(theirs, 1, 1)
        if not numbers:
            raise EOFError("the supervisor has ended")
        return socket.socket(fileno=numbers[0])

    serve(hire)


def _hire_worker(control: socket.socket, work: Callable[[socket.socket], None]) -> int:
    servers, workers = socket.socketpair()

    def run() -> None:
        control.close()
        servers.close()
        for number in SIGNALS:  # a terminal or systemd sends them to all processes; the server decides
            signal.signal(number, signal.SIG_IGN)
        work(workers)

    with servers, workers:
        process = _fork(run)
        with suppress(OSError):  # the server was killed
            socket.send_fds(control, [b"w"], [servers.fileno()])
    return process


def _fork(run: Callable[[], Any]) -> int:
    """The process id of a new process that runs this function and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    _run_to_end(run)


def _run_to_end(run: Callable[[], Any]) -> NoReturn:
    code = 1
    try:
        run()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _reap(processes: set[int], options: int) -> None:
    """Waits for these child processes, or with os.WNOHANG only for those that have ended."""
    processes -= {process for process in processes if os.waitpid(process, options)[0]}
