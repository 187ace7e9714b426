"""Computes what would delay other requests in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rskip.machine.extras import extra

with extra("serve", what="a server"):
    from starlette.concurrency import run_in_threadpool

T = TypeVar("T")
_SHORT = 1_000  # characters; tokenising them takes 1.4 ms, and handing work to another thread 0.3 ms


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of `work`. If it may take long, it runs in another thread.

    :param size: the characters or values in which its time is about linear.
    """
    return work() if size <= _SHORT else await run_in_threadpool(work)
