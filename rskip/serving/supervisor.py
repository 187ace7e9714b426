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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PAUSE = 1.0  # seconds before a server that was killed is replaced
_NUMBER = 8  # bytes of the server's messages: 0 hires a worker, another number kills the one whose socket has it


class Hire:
    """Starts and kills workers, for the server, at the other end of its socket to the supervisor."""

    def __init__(self, supervisor: socket.socket) -> None:
        self._supervisor, self._lock = supervisor, threading.Lock()

    def __call__(self) -> socket.socket:
        """Starts a worker and returns the socket to it.

        :raises OSError: no process could be started.
        """
        with self._lock:
            self._supervisor.sendall(bytes(_NUMBER))
            _, found, _, _ = socket.recv_fds(self._supervisor, 1, 1)
        if not found:
            raise OSError("the supervisor could not start a worker process")
        return socket.socket(fileno=found[0])

    def kill(self, worker: int) -> None:
        """Kills the worker to which this descriptor of a socket leads."""
        with self._lock:
            self._supervisor.sendall(os.fstat(worker).st_ino.to_bytes(_NUMBER, "big"))


def supervise(
    serve: Callable[[Hire], None], work: Callable[[socket.socket], None], *, at_end: Callable[[], None]
) -> None:
    """Runs a server until it ends by itself, which it does after SIGTERM or Ctrl-C. Linux only.

    :param serve: runs the server, by `run_server`.
    :param work: runs a worker until the socket to the server is closed.
    :param at_end: called in this process after SIGTERM or Ctrl-C, perhaps twice: closes its copy of the listening
        socket, or clients could still connect while the server shuts down.
    :raises SystemExit: the server failed.
    """
    ending, server = False, 0

    def end(*_: object) -> None:
        nonlocal ending
        ending = True
        at_end()
        if server:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(server, signal.SIGTERM)

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        while True:
            ours, theirs = socket.socketpair()
            with ours:
                signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server unblocks them when it has its handlers
                server = 0 if ending else _fork(partial(_serve, serve, ours, theirs))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                theirs.close()
                code = _employ_workers(ours, work, server) if server else 0
            server = 0
            if code >= 0 or ending:
                break
            print(f"the server was killed by signal {-code}: starting it again", file=sys.stderr, flush=True)
            time.sleep(_PAUSE)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise SystemExit(abs(code))


def _serve(serve: Callable[[Hire], None], ours: socket.socket, theirs: socket.socket) -> None:
    ours.close()
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)
    serve(Hire(theirs))


def _employ_workers(control: socket.socket, work: Callable[[socket.socket], None], server: int) -> int:
    """Starts and kills workers as the server asks. Returns the server's exit status."""
    workers: dict[int, int] = {}  # the processes, by the number of the server's socket to each
    while message := _message(control):
        _reap(workers, os.WNOHANG)
        number = int.from_bytes(message, "big")
        if not number:
            workers |= _hire_worker(control, work)
        elif number in workers:
            os.kill(workers[number], signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    for worker in workers.values():  # nobody waits for what they still compute
        os.kill(worker, signal.SIGKILL)
    _reap(workers, 0)
    return code


def _message(control: socket.socket) -> bytes:
    with suppress(OSError):  # the server was killed
        return control.recv(_NUMBER)
    return b""


def _hire_worker(control: socket.socket, work: Callable[[socket.socket], None]) -> dict[int, int]:
    """Starts a worker and sends the server its socket, or a message without a socket if there is no new process."""
    try:
        servers, workers = socket.socketpair()
        with servers, workers:
            process = _fork(partial(_work, work, workers, others=(control, servers)))
            _send(control, servers.fileno())
            return {os.fstat(servers.fileno()).st_ino: process}
    except OSError as error:
        print(f"can't start a worker process: {error.strerror}", file=sys.stderr, flush=True)
        _send(control)
        return {}


def _send(control: socket.socket, *descriptors: int) -> None:
    with suppress(OSError):  # the server was killed
        if descriptors:
            socket.send_fds(control, [b"w"], descriptors)
        else:
            control.sendall(b"w")


def _work(work: Callable[[socket.socket], None], server: socket.socket, others: Sequence[socket.socket]) -> None:
    for other in others:
        other.close()
    for number in SIGNALS:  # a terminal or systemd sends them to all processes; the server decides
        signal.signal(number, signal.SIG_IGN)
    work(server)


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


def _reap(workers: dict[int, int], options: int) -> None:
    """Waits for these child processes, or with os.WNOHANG only for those that have ended, and removes them."""
    for number in [number for number, process in workers.items() if os.waitpid(process, options)[0]]:
        del workers[number]
