"""The jobs of accepted requests, and the queue of their items that wait for a batch. It has a limit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition
from typing import TYPE_CHECKING, Any

from rskip.serving.errors import RequestError

if TYPE_CHECKING:
    from rskip.serving.translating import TranslationLane

EachStep = Callable[[int], None]  # the lane calls it often, with the number of the step; what it raises ends the work


class QueueFull(Exception):
    """Raised if a job doesn't fit into the queue."""


class Job:
    """The items of one request.

    :param sizes: tokens of each item.

    future: the results of all items, or the error of one of them. Cancelling it abandons the job.
    """

    def __init__(self, lane: TranslationLane, items: Sequence[Any], sizes: Sequence[int]) -> None:
        self.lane, self.items, self.sizes = lane, items, sizes
        self._count = len(items)
        self.future: Future[list[Any]] = Future()
        self._results: dict[int, Any] = {}
        if not items:
            self.future.set_result([])
        self.future.add_done_callback(self._free_items)

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
            if len(self._results) == self._count:
                self.future.set_result([self._results[index] for index in range(self._count)])

    def _free_items(self, future: Future[list[Any]]) -> None:
        self.items = ()


@dataclass(frozen=True)
class Waiting:
    """An item in the queue.

    number: its number in the job. size: its tokens. arrived: time by `time.monotonic`.
    """

    job: Job
    number: int
    content: Any
    size: int
    arrived: float


class JobQueue:
    """Holds items in the order of their arrival, and gives them out in batches of one lane. It is thread-safe.

    :param limit: maximum number of items that wait.
    :param most_tokens: maximum tokens that wait; an empty queue takes any job.
    """

    def __init__(self, limit: int, *, most_tokens: int) -> None:
        self.limit, self.most_tokens = limit, most_tokens
        self._lanes: dict[TranslationLane, deque[Waiting]] = {}
        self._changed = Condition()
        self._closed = False

    def put(self, job: Job) -> None:
        """Adds all items of a job. They leave the queue if the job fails or is abandoned.

        :raises QueueFull: they don't fit. None of them was added.
        :raises RequestError: the server is shutting down.
        """
        with self._changed:
            if self._closed:
                raise RequestError(503, "the server is shutting down: try again later", retry_after=5)
            waiting, more = self._tokens(), sum(job.sizes)
            if self._count() + len(job.items) > self.limit or (waiting and waiting + more > self.most_tokens):
                raise QueueFull
            now = time.monotonic()
            items = [Waiting(job, *each, now) for each in zip(range(len(job.items)), job.items, job.sizes, strict=True)]
            if items:
                self._lanes.setdefault(job.lane, deque()).extend(items)
            self._changed.notify()
        job.future.add_done_callback(lambda future: self._done(job))

    def take(self, *, tokens: int, wait: float) -> list[Waiting] | None:
        """Waits for a batch and removes it. The lane of the oldest item goes first. None: the queue is closed and
        empty.

        :param tokens: maximum size of the batch. A larger item forms a separate batch.
        :param wait: seconds for which the oldest item waits, unless the batch is full before.
        """
        with self._changed:
            while True:
                self._lanes = {lane: waiting for lane, waiting in self._lanes.items() if waiting}
                if not self._lanes:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                lane = min(self._lanes, key=lambda lane: self._lanes[lane][0].arrived)
                left = self._lanes[lane][0].arrived + wait - time.monotonic()
                if left > 0 and not self._closed and sum(each.size for each in self._lanes[lane]) < tokens:
                    self._changed.wait(left)
                elif batch := self._next_batch(self._lanes[lane], tokens):
                    self._changed.notify()  # items that are left
                    return batch

    def close(self) -> None:
        """Refuses further jobs. What waits can still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        with self._changed:
            return self._count()

    @property
    def tokens(self) -> int:
        """The size of all items that wait."""
        with self._changed:
            return self._tokens()

    def _count(self) -> int:
        return sum(map(len, self._lanes.values()))

    def _tokens(self) -> int:
        return sum(each.size for waiting in self._lanes.values() for each in waiting)

    def _done(self, job: Job) -> None:
        if job.future.cancelled() or job.future.exception() is not None:
            with self._changed:
                left = deque(each for each in self._lanes.get(job.lane, ()) if each.job is not job)
                self._lanes[job.lane] = left

    def _next_batch(self, waiting: deque[Waiting], tokens: int) -> list[Waiting]:
        batch: list[Waiting] = []
        total = 0
        while waiting:
            total += waiting[0].size
            if batch and total > tokens:
                break
            batch.append(waiting.popleft())
        return batch
