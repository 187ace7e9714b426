"""Processes that end when the one that they work for does; and workers, each a fresh Python that ignores SIGINT."""

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
    """`count` processes, started at once, in each of which `begin(*arguments)` is called first.

    They end when they are closed, and when this process ends, whatever ends it.

    pool: takes what they are to do; `BrokenProcessPool` says that one of them was ended from outside.
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
        """Ends them, in the middle of what they do."""
        for process in self._processes:
            process.terminate()
        self.pool.shutdown(cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks SIGINT, also in the processes that the block starts: the keyboard's is this process's to handle."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_order(job: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int) -> Generator[Result, None, None]:
    """The results of `job(task)`, in the tasks' order. Few tasks are asked for before they are needed.

    With one worker the job runs in this process. Other workers are processes that end with the iteration.

    :param job: pickles; each worker has one, which may keep what it computes.
    :raises OSError: a worker was ended from outside, or memory is exhausted; besides what `job` raises.
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
    except BrokenProcessPool as error:
        problem = "a worker process was ended, perhaps for want of memory"
        raise OSError(f"{problem}: {fewer}; run it again to resume") from error
    except MemoryError as error:
        raise OSError(f"memory is exhausted: {fewer}; run it again to resume") from error
    finally:
        if processes is not None:
            processes.close()


def ending_with_this() -> Callable[[], None] | None:
    """A `preexec_fn` that has Linux kill the child when this thread, which starts it, ends or is killed.

    None on other systems.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed meanwhile
            os.kill(os.getpid(), signal.SIGKILL)

    return bind


def end_with_parent() -> None:
    """On Linux, has this process killed when the thread that started it ends."""
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
