"""Ends fairseq's thread for loading batches before Python exits.

If a training ends within an epoch, this daemon thread is still running. If Python kills it while it runs C++ code of
PyTorch, the process aborts, although all its work is done.
"""

from __future__ import annotations

import atexit
import queue
import threading
from typing import Any

from fairseq_compat.patch import Patch


def end_at_exit(module: Any) -> None:
    """Makes Python wait at exit until each thread of `fairseq.data.iterators` has loaded its current batch."""

    def end_all() -> None:
        for thread in threading.enumerate():
            if isinstance(thread, module.BackgroundConsumer):
                end(thread)

    atexit.register(end_all)


def end(thread: Any) -> None:
    """Ends a `BackgroundConsumer` after its current batch."""
    thread._max_len = 0
    while thread.is_alive():
        try:
            thread._queue.get(timeout=0.1)  # the thread may wait for room in its queue
        except queue.Empty:
            continue


LOADING_THREAD = Patch(
    name="loading-thread",
    symptom="a training run that ends within an epoch: terminate called without an active exception, SIGABRT",
    after={"fairseq.data.iterators": end_at_exit},
)
