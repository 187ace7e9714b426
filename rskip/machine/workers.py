"""Processes that work for this one, each a fresh Python: deaf to the keyboard, and gone when this one is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


class WorkerProcesses:
    """`count` processes, started at once, in each of which `begin(*arguments)` is called first.

    They end when they are closed, and when this process ends, whatever ends it.

    pool: takes what they are to do; `BrokenProcessPool` says that one of them was ended from outside.
    """

    def __init__(self, count: int, begin: Callable[..., None], *arguments: Any) -> None:
        others = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(begin, arguments))
        # an interrupt from the keyboard is this process's to handle: they inherit that it is blocked
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for _ in range(count):
                self.pool.submit(os.getpid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._processes = set(multiprocessing.active_children()) - others

    def close(self) -> None:
        """Ends them, in the middle of what they do."""
        for process in self._processes:
            process.terminate()
        self.pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    begin(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
