"""Computes waiting items in batches, in threads."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from threading import Thread
from typing import Any, Literal

from rskip.serving.errors import RequestError
from rskip.serving.metrics import Metrics
from rskip.serving.queue import EachStep, Job, JobQueue, QueueFull, Waiting
from rskip.serving.settings import ServerSettings
from rskip.serving.translating import TranslationLane
from rskip.serving.workers import Compute, WorkerLost

_LOG = logging.getLogger("rskip.serving")
_LONGEST_RETRY = 60  # seconds
_FAILURES, _FAILING = 3, 60.0  # that many failed batches in a row make the server not ready, for so many seconds
_LOST = "the processes that computed this request were killed: send less, or try again later"


class _Abandoned(Exception):
    """Nobody waits for a batch any more."""


def compute_here(lane: TranslationLane, items: Sequence[Any], each_step: EachStep) -> Sequence[Any]:
    """Computes in this process. The kernels release Python's lock, so the server stays responsive."""
    return lane.compute(items, each_step)


class Batcher:
    """Threads that take batches from a queue, one thread for each element of `computers`.

    A batch that fails is repeated item by item, so that a request can't make another one fail. A search ends early if
    all of its clients have gone or timed out.
    """

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, *, computers: Sequence[Compute] = (compute_here,)
    ) -> None:
        self.queue = JobQueue(settings.max_queue, most_tokens=settings.max_queue_tokens)
        self.settings, self.metrics, self._computers = settings, metrics, computers
        self._threads: list[Thread] = []
        self._speed = 0.0  # tokens per second of recent batches
        self._failures, self._failed = 0, -math.inf  # batches in a row that failed, and when the last one did
        metrics.watch(self.queue)

    def start(self) -> None:
        """Starts the threads."""
        for number, compute in enumerate(self._computers):
            self._threads.append(Thread(target=self._run, args=(compute,), name=f"batches {number}", daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        """Refuses further jobs, computes those that wait, and ends the threads."""
        self.queue.close()
        for thread in self._threads:
            thread.join()

    @property
    def state(self) -> Literal["ready", "failing", "shutting down"]:
        """Whether jobs are accepted and computed. After a time of failures, it says ready to let one be tried."""
        if not (self._threads and all(map(Thread.is_alive, self._threads))) or self.queue.closed:
            return "shutting down"
        is_failing = self._failures >= _FAILURES and time.monotonic() - self._failed < _FAILING
        return "failing" if is_failing else "ready"

    def submit(self, job: Job) -> None:
        """Adds a job to the queue.

        :raises RequestError: the queue is full, or the server is shutting down.
        """
        try:
            self.queue.put(job)
        except QueueFull:
            self.metrics.refused.labels("queue full").inc()
            seconds = self.queue.tokens / self._speed if self._speed else 1
            retry = min(max(math.ceil(seconds), 1), _LONGEST_RETRY)
            message = f"the server is busy: {len(self.queue):,} sentences wait; try again in {retry} s"
            raise RequestError(429, message, retry_after=retry) from None

    def _run(self, compute: Compute) -> None:
        settings = self.settings
        while batch := self.queue.take(tokens=settings.batch_tokens, wait=settings.batch_wait / 1000):
            try:
                self._compute(batch, compute)
            except Exception as error:  # a fault here must not end the thread
                _LOG.exception("a batch failed")
                for each in batch:
                    each.job.finish(each.number, error)

    def _compute(self, batch: Sequence[Waiting], compute: Compute) -> None:
        lane, start = batch[0].job.lane, time.monotonic()

        def check_wanted(step: int) -> None:
            if not any(each.job.wanted for each in batch):
                raise _Abandoned

        try:
            results: Sequence[Any] = compute(lane, [each.content for each in batch], check_wanted)
        except _Abandoned:
            self.metrics.abandoned.inc()
            return
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._compute([each], compute)
                return
            results = [RequestError(500, _LOST) if isinstance(error, WorkerLost) else error]
        if isinstance(results[0], Exception) and not isinstance(results[0], ValueError):
            self._failures, self._failed = self._failures + 1, time.monotonic()
        else:
            self._failures = 0
        seconds, size = time.monotonic() - start, sum(each.size for each in batch)
        self._speed = 0.8 * self._speed + 0.2 * size / max(seconds, 1e-9) if self._speed else size / max(seconds, 1e-9)
        made = sum(lane.produced(result) for result in results if not isinstance(result, Exception))
        self.metrics.computed(lane.model, items=len(batch), tokens=size, produced=made, seconds=seconds)
        for each, result in zip(batch, results, strict=True):
            each.job.finish(each.number, result)
