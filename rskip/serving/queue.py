"""Computes the jobs of accepted requests in batches, in one thread. The queue has a limit."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Literal

from rskip.generation.options import SearchOptions
from rskip.serving.errors import RequestError
from rskip.serving.metrics import Metrics
from rskip.serving.settings import ServerSettings
from rskip.translation import Translator
from rskip.translation.search import ModelSearcher
from rskip.translation.segments import Source
from rskip.translation.translation import Translation

_LOG = logging.getLogger("rskip.serving")
_LONGEST_RETRY = 60  # seconds
_FAILURES, _FAILING = 3, 60.0  # that many failed batches in a row make the server not ready, for so many seconds


@dataclass(frozen=True)
class Lane:
    """Translates sentences by one translator with the same options. Equal lanes share batches.

    model: the model's name.
    max_tokens: see `Translator.search`.
    """

    model: str
    translator: Translator
    options: SearchOptions
    max_tokens: int

    def compute(self, items: Sequence[Source], each_step: Callable[[int], None]) -> list[Translation]:
        """The translations of the sources.

        :param each_step: called during the search, at least every 0.2 seconds; what it raises ends the computation.
        """
        searcher = ModelSearcher(self.translator.model, each_step)
        return self.translator.search(items, self.options, max_tokens=self.max_tokens, searcher=searcher)

    def produced(self, result: Translation) -> int:
        """The tokens of the best translation."""
        return len(result.hypotheses[0].tokens)


@dataclass(eq=False)
class Job:
    """The items of one request.

    sizes: tokens of each item.
    future: the results, or an error. Cancelling it abandons the job.
    """

    lane: Lane
    items: Sequence[Any]
    sizes: Sequence[int]
    future: Future[Sequence[Any]] = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def wanted(self) -> bool:
        """Whether its client still waits for results."""
        return not self.future.done()

    def end(self, results: Sequence[Any] | Exception) -> None:
        with suppress(InvalidStateError):  # cancelled meanwhile
            if isinstance(results, Exception):
                self.future.set_exception(results)
            else:
                self.future.set_result(results)


class _Abandoned(Exception):
    """Nobody waits for a batch any more."""


class Batcher:
    """A thread that takes batches of jobs of one lane from a queue, in the order of arrival, and computes them.

    The jobs of a batch that fails are repeated one by one, so that a request can't make another one fail. A search ends
    early if all of its clients have gone or timed out.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self._jobs: list[Job] = []
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="batches", daemon=True)
        self._speed = 0.0  # tokens per second of recent batches
        self._failures, self._failed = 0, -math.inf  # batches in a row that failed, and when the last one did
        self._stepped = math.inf  # when the last step of the present batch began
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
        """Whether jobs are accepted and computed: "failing" if batches failed in a row, until a time has passed, or if
        the steps of one don't end."""
        if self._closed or not self._thread.is_alive():
            return "shutting down"
        now = time.monotonic()
        is_failing = self._failures >= _FAILURES and now - self._failed < _FAILING
        return "failing" if is_failing or now - self._stepped > 2 * self.settings.timeout else "ready"

    def waiting(self) -> tuple[int, int]:
        """The number of items that wait, and their tokens."""
        jobs = [each for each in [*self._jobs] if each.wanted]
        return sum(len(each.items) for each in jobs), sum(each.size for each in jobs)

    def submit(self, job: Job) -> None:
        """Adds a job to the queue, which it leaves if it is abandoned.

        :raises RequestError: it doesn't fit, or the server is shutting down.
        """
        items, tokens = self.waiting()
        settings = self.settings
        if items + len(job.items) > settings.max_queue or (tokens and tokens + job.size > settings.max_queue_tokens):
            self.metrics.refused.labels("queue full").inc()
            retry = min(max(math.ceil(tokens / self._speed if self._speed else 1), 1), _LONGEST_RETRY)
            message = f"the server is busy: {items:,} sentences wait; try again in {retry} s"
            raise RequestError(429, message, retry_after=retry)
        with self._changed:
            if self._closed:
                raise RequestError(503, "the server is shutting down: try again later", retry_after=5)
            self._jobs.append(job)
            self._changed.notify()

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._stepped = time.monotonic()
                self._compute(batch)
            except Exception as error:  # a fault here must not end the thread
                _LOG.exception("a batch failed")
                for job in batch:
                    job.end(error)
            self._stepped = math.inf

    def _take(self) -> list[Job]:
        """Waits for a batch and removes it. The lane of the oldest job goes first. Empty: nothing more will come."""
        with self._changed:
            while True:
                self._jobs = [each for each in self._jobs if each.wanted]
                if not self._jobs:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                batch, is_full = self._next_batch()
                left = batch[0].arrived + self.settings.batch_wait / 1000 - time.monotonic()
                if left <= 0 or is_full or self._closed:
                    taken = {*batch}
                    self._jobs = [each for each in self._jobs if each not in taken]
                    return batch
                self._changed.wait(left)

    def _next_batch(self) -> tuple[list[Job], bool]:
        """The first jobs of the oldest one's lane, and whether they fill a batch. A larger job is a separate batch."""
        first, most = self._jobs[0], self.settings.batch_tokens
        batch, tokens = [first], first.size
        for job in self._jobs[1:]:
            if job.lane is first.lane or job.lane == first.lane:
                if tokens + job.size > most:
                    return batch, True
                batch.append(job)
                tokens += job.size
        return batch, tokens >= most

    def _compute(self, batch: Sequence[Job]) -> None:
        lane, start = batch[0].lane, time.monotonic()

        def check_wanted(step: int) -> None:
            self._stepped = time.monotonic()
            if not any(job.wanted for job in batch):
                raise _Abandoned

        try:
            results = iter(lane.compute([item for job in batch for item in job.items], check_wanted))
        except _Abandoned:
            self.metrics.abandoned.inc()
            return
        except Exception as error:
            if len(batch) > 1:
                for job in batch:
                    self._compute([job])
                return
            if not isinstance(error, ValueError):
                self._failures, self._failed = self._failures + 1, time.monotonic()
            batch[0].end(error)
            return
        self._failures = 0
        seconds, size = max(time.monotonic() - start, 1e-9), sum(job.size for job in batch)
        self._speed = 0.8 * self._speed + 0.2 * size / seconds if self._speed else size / seconds
        found = [[next(results) for _ in job.items] for job in batch]
        made = sum(lane.produced(each) for part in found for each in part)
        count = sum(len(job.items) for job in batch)
        self.metrics.computed(lane.model, items=count, tokens=size, produced=made, seconds=seconds)
        for job, part in zip(batch, found, strict=True):
            job.end(part)
