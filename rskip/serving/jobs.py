"""Represents the work of accepted requests, and what computes it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol

EachStep = Callable[[int], None]  # the lane calls it often, with the number of the step; what it raises ends the work


class Lane(Hashable, Protocol):
    """Computes items of the same kind, such as sentences for one translator and the same options. Equal lanes share
    batches."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...

    def compute(self, items: Sequence[Any], each_step: EachStep) -> Sequence[Any]:
        """The result of each item.

        :param each_step: see `EachStep`.
        """
        ...

    def produced(self, result: Any) -> int:
        """The number of tokens in a result."""
        ...


class Job:
    """The items of one request.

    :param sizes: tokens of each item.

    future: the results of all items, or the error of one of them. Cancelling it abandons the job.
    """

    def __init__(self, lane: Lane, items: Sequence[Any], sizes: Sequence[int]) -> None:
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
