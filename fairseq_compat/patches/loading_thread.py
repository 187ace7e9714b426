"""Ends fairseq's thread that loads batches before Python ends.

A training that ends within an epoch leaves that daemon thread running. If Python ends it while it runs C++ code of
PyTorch, the whole process aborts, although everything was done.
"""

from __future__ import annotations

import atexit
import queue
import threading
from typing import Any

from fairseq_compat.patch import Patch


def end_at_exit(module: Any) -> None:
    """Has Python wait at exit for the batch that each thread of `fairseq.data.iterators` is loading."""

    def end_all() -> None:
        for thread in threading.enumerate():
            if isinstance(thread, module.BackgroundConsumer):
                end(thread)

    atexit.register(end_all)
    module.BackgroundConsumer.ends_before_python = True


def end(thread: Any) -> None:
    """Ends a `BackgroundConsumer` after the batch that it is loading."""
    thread._max_len = 0
    while thread.is_alive():
        try:
            thread._queue.get(timeout=0.1)  # it may be waiting for room
        except queue.Empty:
            continue


def active() -> bool:
    from fairseq.data.iterators import BackgroundConsumer

    return getattr(BackgroundConsumer, "ends_before_python", False)


LOADING_THREAD = Patch(
    name="loading-thread",
    modules=("fairseq.data.iterators",),
    symptom="a training that ends within an epoch: terminate called without an active exception, SIGABRT",
    after=end_at_exit,
    active=active,
)
