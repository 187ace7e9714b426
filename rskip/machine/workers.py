"""Child processes that end with their parent, and workers: new Python processes that ignore SIGINT."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_job: Callable[[Any], Any]  # a worker's own


class WorkerProcesses:
    """`count` processes, started immediately, each of which first calls `begin(*arguments)`.

    They end when they are closed, and when this process ends for any reason.

    pool: accepts their jobs. It raises `BrokenProcessPool` if one of the processes was killed from outside.
    """

    def __init__(self, count: int, begin: Callable[..., None], *arguments: Any) -> None:
        others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(begin, arguments))
        with _without_interrupts():
            for _ in range(count):
                self.pool.submit(os.getpid)
        self._processes = set(multiprocessing.active_children()) - others

    def close(self) -> None:
        """Kills the processes, even in the middle of a job."""
        for process in self._processes:
            process.terminate()
        self.pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in the block and in the processes that it starts; only this process handles Ctrl-C."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_order(job: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int) -> Generator[Result, None, None]:
    """Yields the results of `job(task)`, in the order of the tasks. Reads only a few tasks ahead.

    With one worker, the job runs in this process. Otherwise the workers are processes that end with the iteration.

    :param job: can be pickled. Each worker has its own copy, which may cache results.
    :raises OSError: a worker was killed from outside, or memory ran out. Errors of `job` are raised too.
    """
    fewer = "use fewer workers" if workers > 1 else "free some"
    processes = WorkerProcesses(workers, _keep_job, job) if workers > 1 else None
    try:
        if processes is None:
            yield from map(job, tasks)
            return
        under_way: deque[Future[Result]] = deque()
        for task in tasks:
            under_way.append(processes.pool.submit(_run, task))
            if len(under_way) > workers + 2:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except (BrokenProcessPool, MemoryError) as error:
        killed = isinstance(error, BrokenProcessPool)
        problem = "a worker process was killed, perhaps out of memory" if killed else "memory ran out"
        raise OSError(f"{problem}: {fewer}; run it again to resume") from error
    finally:
        if processes is not None:
            processes.close()


def ending_with_this() -> Callable[[], None] | None:
    """A `preexec_fn` with which Linux kills the child when this thread, its starter, ends. None on other systems."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before the call
            os.kill(os.getpid(), signal.SIGKILL)

    return bind


def end_with_parent() -> None:
    """On Linux, makes the kernel kill this process when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _begin(begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_wait_for_parent, daemon=True).start()
    begin(*arguments)


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _keep_job(job: Callable[[Any], Any]) -> None:
    global _job
    _job = job


def _run(task: Any) -> Any:
    return _job(task)
