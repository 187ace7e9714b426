"""Work in several processes, in order and with little in memory at any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from rskip.machine.workers import WorkerProcesses

Task = TypeVar("Task")
Result = TypeVar("Result")

_job: Callable[[Any], Any]  # a worker's own


def in_order(job: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int) -> Generator[Result, None, None]:
    """The results of `job(task)`, in the tasks' order. Few tasks are asked for before they are needed.

    With one worker the job runs in this process. Other workers are processes of their own, which begin as a fresh
    Python and end with the iteration, or with this process, whatever ends it.

    :param job: pickles; each worker has one, which may keep what it computes.
    :raises OSError: a worker was ended from outside, or memory was exhausted; besides what `job` raises.
    """
    if workers == 1:
        try:
            yield from map(job, tasks)
        except MemoryError as error:
            raise OSError("memory is exhausted: free some; the same command goes on") from error
        return
    processes = WorkerProcesses(workers, _begin, job)
    try:
        under_way: deque[Future[Result]] = deque()
        for task in tasks:
            under_way.append(processes.pool.submit(_run, task))
            if len(under_way) > workers + 2:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    except BrokenProcessPool as error:
        raise OSError(
            "a worker process was ended, perhaps for want of memory: use fewer --workers; "
            "the same command goes on where this one stopped"
        ) from error
    except MemoryError as error:
        raise OSError("memory is exhausted: use fewer --workers; the same command goes on") from error
    finally:
        processes.close()


def _begin(job: Callable[[Any], Any]) -> None:
    global _job
    _job = job


def _run(task: Any) -> Any:
    return _job(task)
