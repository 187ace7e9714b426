"""The queue of items that wait for a batch. It has a limit."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from threading import Condition
from typing import Any

from rskip.serving.jobs import Job, Lane


class QueueFull(Exception):
    """Raised if a job doesn't fit into the queue."""


class QueueClosed(Exception):
    """Raised if the server is shutting down."""


@dataclass(frozen=True)
class Waiting:
    """An item in the queue.

    number: its number in the job. arrived: time by `time.monotonic`.
    """

    job: Job
    number: int
    arrived: float

    @property
    def content(self) -> Any:
        return self.job.items[self.number]

    @property
    def size(self) -> int:
        """Its tokens."""
        return self.job.sizes[self.number]


class JobQueue:
    """Holds items in the order of their arrival, and gives them out in batches of one lane. It is thread-safe.

    :param limit: maximum number of items that wait.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lanes: dict[Lane, deque[Waiting]] = {}
        self._changed = Condition()
        self._closed = False

    def put(self, job: Job) -> None:
        """Adds all items of a job.

        :raises QueueFull: they don't fit. None of them was added.
        :raises QueueClosed: the queue was closed.
        """
        with self._changed:
            if self._closed:
                raise QueueClosed
            if self._count() + len(job.items) > self.limit:
                self._drop_unwanted()
                if self._count() + len(job.items) > self.limit:
                    raise QueueFull
            now = time.monotonic()
            waiting = self._lanes.setdefault(job.lane, deque()) if job.items else deque()
            waiting.extend(Waiting(job, number, now) for number in range(len(job.items)))
            self._changed.notify()

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
            return sum(each.size for waiting in self._lanes.values() for each in waiting)

    def _count(self) -> int:
        return sum(map(len, self._lanes.values()))

    def _drop_unwanted(self) -> None:
        self._lanes = {
            lane: deque(each for each in waiting if each.job.wanted) for lane, waiting in self._lanes.items()
        }

    def _next_batch(self, waiting: deque[Waiting], tokens: int) -> list[Waiting]:
        batch: list[Waiting] = []
        total = 0
        while waiting:
            if not waiting[0].job.wanted:
                waiting.popleft()
                continue
            total += waiting[0].size
            if batch and total > tokens:
                break
            batch.append(waiting.popleft())
        return batch
