"""Worker processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rskip.machine.workers import in_order


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_few_tasks_are_asked_for_ahead(workers: int) -> None:
    asked = 0

    def tasks() -> Iterator[int]:
        nonlocal asked
        while asked < 40:
            asked += 1
            yield asked

    results = in_order(math.factorial, tasks(), workers=workers)
    assert next(results) == 1
    assert asked == (1 if workers == 1 else workers + 3)
    assert list(results) == [math.factorial(number) for number in range(2, 41)]
    assert not multiprocessing.active_children()


def test_workers_ignore_sigint_and_are_ended_with_the_iteration() -> None:
    results = in_order(abs, range(100), workers=2)
    assert next(results) == 0
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker in workers:
        os.kill(worker.pid or 0, signal.SIGINT)
    assert next(results) == 1
    results.close()
    assert not any(worker.is_alive() for worker in workers)


def test_what_the_job_raises_is_raised() -> None:
    for workers in (1, 2):
        with pytest.raises(ZeroDivisionError):
            list(in_order((1).__truediv__, [1, 0], workers=workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_that_runs_out_is_an_oserror(workers: int) -> None:
    """As is a worker that is ended from outside."""
    with pytest.raises(OSError, match=r"^memory ran out: (use fewer workers|free some); run it again to resume$"):
        list(in_order(bytearray, [1, sys.maxsize], workers=workers))
    if workers > 1:
        with pytest.raises(OSError, match="^a worker process was killed, perhaps out of memory: use fewer workers"):
            list(in_order(signal.raise_signal, [signal.SIGKILL] * 2, workers=workers))


def test_workers_end_with_a_process_that_is_killed() -> None:
    program = """
import multiprocessing, os, signal
from rskip.machine.workers import in_order
results = in_order(abs, range(100), workers=2)
next(results)
print(*(worker.pid for worker in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    workers = [Path("/proc", number) for number in process.stdout.split()]
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(worker.exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(worker.exists() for worker in workers)
