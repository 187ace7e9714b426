"""Computes the items of accepted requests in batches, in one thread. The queue has a limit."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any, Literal, Protocol

from rskip.serving.errors import RequestError
from rskip.serving.metrics import Metrics
from rskip.serving.settings import ServerSettings

_LOG = logging.getLogger("rskip.serving")
_LONGEST_RETRY = 60  # seconds
_FAILURES, _FAILING = 3, 60.0  # that many failed batches in a row make the server not ready, for so many seconds
EachStep = Callable[[int], None]


class Lane(Protocol):
    """Computes items of one kind. Equal lanes share batches."""

    @property
    def model(self) -> str:
        """The model's name."""

    def compute(self, items: Sequence[Any], each_step: EachStep) -> Sequence[Any]:
        """The results of the items.

        :param each_step: called before each step; what it raises ends the computation.
        """

    def produced(self, result: Any) -> int:
        """The tokens of a result."""


class Job:
    """The items of one request.

    :param sizes: tokens of each item.

    future: the results of all items, or the error of one of them. Cancelling it abandons the job.
    """

    def __init__(self, lane: Lane, items: Sequence[Any], sizes: Sequence[int]) -> None:
        self.lane, self.items, self.sizes = lane, items, sizes
        self.future: Future[list[Any]] = Future()
        self._results: dict[int, Any] = {}
        if not items:
            self.future.set_result([])

    @property
    def wanted(self) -> bool:
        """Whether its client still waits for results."""
        return not self.future.done()

    def finish(self, number: int, result: Any) -> None:
        """Adds the result of an item, or its exception."""
        with suppress(InvalidStateError):  # cancelled meanwhile
            if isinstance(result, Exception):
                self.future.set_exception(result)
                return
            self._results[number] = result
            if len(self._results) == len(self.items):
                self.future.set_result([self._results[index] for index in range(len(self.items))])


@dataclass(frozen=True)
class _Item:
    """An item in the queue. arrived: time by `time.monotonic`."""

    job: Job
    number: int
    arrived: float

    @property
    def size(self) -> int:
        return self.job.sizes[self.number]


class _Abandoned(Exception):
    """Nobody waits for a batch any more."""


class Batcher:
    """A thread that takes batches of one lane from a queue, in the order of arrival, and computes them.

    A batch that fails is repeated item by item, so that a request can't make another one fail. A search ends early if
    all of its clients have gone or timed out.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._lanes: dict[Lane, deque[_Item]] = {}
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="batches", daemon=True)
        self._speed = 0.0  # tokens per second of recent batches
        self._failures, self._failed = 0, -math.inf  # batches in a row that failed, and when the last one did
        metrics.watch(self.waiting)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Refuses further jobs, computes those that wait, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def state(self) -> Literal["ready", "failing", "shutting down"]:
        """Whether jobs are accepted and computed. After a time of failures, it says ready to let one be tried."""
        if self._closed or not self._thread.is_alive():
            return "shutting down"
        is_failing = self._failures >= _FAILURES and time.monotonic() - self._failed < _FAILING
        return "failing" if is_failing else "ready"

    def waiting(self) -> tuple[int, int]:
        """The number of items that wait, and their tokens."""
        with self._changed:
            sizes = [each.size for each in self._wanted()]
        return len(sizes), sum(sizes)

    def submit(self, job: Job) -> None:
        """Adds all items of a job to the queue. They leave it if the job fails or is abandoned.

        :raises RequestError: they don't fit, or the server is shutting down. None of them was added.
        """
        items, tokens = self.waiting()
        more, settings = sum(job.sizes), self.settings
        if items + len(job.items) > settings.max_queue or (tokens and tokens + more > settings.max_queue_tokens):
            self.metrics.refused.labels("queue full").inc()
            retry = min(max(math.ceil(tokens / self._speed if self._speed else 1), 1), _LONGEST_RETRY)
            message = f"the server is busy: {items:,} sentences wait; try again in {retry} s"
            raise RequestError(429, message, retry_after=retry)
        with self._changed:
            if self._closed:
                raise RequestError(503, "the server is shutting down: try again later", retry_after=5)
            if job.items:
                now = time.monotonic()
                lane = self._lanes.setdefault(job.lane, deque())
                lane.extend(_Item(job, number, now) for number in range(len(job.items)))
                self._changed.notify()

    def _wanted(self) -> Iterator[_Item]:
        return (each for waiting in self._lanes.values() for each in waiting if each.job.wanted)

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._compute(batch)
            except Exception as error:  # a fault here must not end the thread
                _LOG.exception("a batch failed")
                for each in batch:
                    each.job.finish(each.number, error)

    def _take(self) -> list[_Item]:
        """Waits for a batch and removes it. The lane of the oldest item goes first. Empty: nothing more will come."""
        with self._changed:
            while True:
                lanes = {lane: deque(each for each in items if each.job.wanted) for lane, items in self._lanes.items()}
                self._lanes = {lane: items for lane, items in lanes.items() if items}
                if not self._lanes:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                waiting = min(self._lanes.values(), key=lambda items: items[0].arrived)
                left = waiting[0].arrived + self.settings.batch_wait / 1000 - time.monotonic()
                tokens = self.settings.batch_tokens
                if left <= 0 or self._closed or sum(each.size for each in waiting) >= tokens:
                    return _next_batch(waiting, tokens)
                self._changed.wait(left)

    def _compute(self, batch: Sequence[_Item]) -> None:
        lane, start = batch[0].job.lane, time.monotonic()

        def check_wanted(step: int) -> None:
            if not any(each.job.wanted for each in batch):
                raise _Abandoned

        try:
            results: Sequence[Any] = lane.compute([each.job.items[each.number] for each in batch], check_wanted)
        except _Abandoned:
            self.metrics.abandoned.inc()
            return
        except Exception as error:
            if len(batch) > 1:
                for each in batch:
                    self._compute([each])
                return
            results = [error]
        if isinstance(results[0], Exception) and not isinstance(results[0], ValueError):
            self._failures, self._failed = self._failures + 1, time.monotonic()
        else:
            self._failures = 0
        seconds, size = max(time.monotonic() - start, 1e-9), sum(each.size for each in batch)
        self._speed = 0.8 * self._speed + 0.2 * size / seconds if self._speed else size / seconds
        made = sum(lane.produced(result) for result in results if not isinstance(result, Exception))
        self.metrics.computed(lane.model, items=len(batch), tokens=size, produced=made, seconds=seconds)
        for each, result in zip(batch, results, strict=True):
            each.job.finish(each.number, result)


def _next_batch(waiting: deque[_Item], tokens: int) -> list[_Item]:
    """Removes the first items of at most so many tokens. A larger item forms a separate batch."""
    batch, total = [waiting.popleft()], 0
    total = batch[0].size
    while waiting and (total := total + waiting[0].size) <= tokens:
        batch.append(waiting.popleft())
    return batch
