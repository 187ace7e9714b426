"""fairseq's thread that loads batches ends before Python does: killed inside PyTorch, it aborts the whole process.

A training that ends within an epoch leaves that daemon thread at work, and one that Python ends while it runs C++ code
ends in "terminate called without an active exception" and SIGABRT, with everything done.
"""

from __future__ import annotations

import atexit
import queue
import threading

from fairseq.data.iterators import BackgroundConsumer


def install() -> None:
    """At exit, waits for the batches that are being loaded."""
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _end_all() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, BackgroundConsumer):
            thread._max_len = 0  # it ends after the batch it is at
            while thread.is_alive():
                try:
                    thread._queue.get(timeout=0.1)  # it may be waiting for room
                except queue.Empty:
                    continue
