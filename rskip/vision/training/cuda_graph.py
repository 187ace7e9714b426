"""Iterations captured as CUDA graphs: their hundreds of kernels start by one call.

A graph repeats kernels with the addresses that they had, so all that changes from one iteration to the next lies in
tensors that stay: parameters, statistics and sums as they are, the batch's plan, the iteration and the learning rate
in tensors that are filled before each replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from rskip.vision.data.loader import BatchPlan

WARM_UP = 3  # iterations of each size of batch before its capture, in which libraries choose and allocate

Update = Callable[[BatchPlan, Tensor], None]


class Graph(Protocol):
    """What was captured."""

    def replay(self) -> None:
        """Does it (again) on the device."""


class CapturedUpdate:
    """Does `update` for one batch after the other, from the fourth of its size on by a graph.

    :param update: an iteration's work on the device. Called with a plan and the iteration's number as a tensor, it may
        read no other number that changes, and not wait for the device.
    :param device: where the tensors are.
    """

    def __init__(self, update: Update, device: torch.device) -> None:
        self._update, self._device = update, device
        self._iteration = torch.zeros((), dtype=torch.int64, device=device)
        self._done: Counter[int] = Counter()
        self._graphs: dict[int, tuple[BatchPlan, Graph]] = {}

    def __call__(self, plan: BatchPlan, iteration: int) -> None:
        """The update of one iteration."""
        self._iteration.fill_(iteration)
        if self._done[plan.count] < WARM_UP:
            self._done[plan.count] += 1
            on_side_stream(lambda: self._update(plan, self._iteration), self._device)
            return
        if plan.count not in self._graphs:
            kept = replace(plan, rows=plan.rows.clone(), offsets=plan.offsets.clone(), flips=plan.flips.clone())
            self._graphs[plan.count] = kept, capture(lambda: self._update(kept, self._iteration))
        kept, graph = self._graphs[plan.count]
        kept.rows.copy_(plan.rows)
        kept.offsets.copy_(plan.offsets)
        kept.flips.copy_(plan.flips)
        graph.replay()


def capture(work: Callable[[], None]) -> Graph:
    """A graph of what `work` gives the GPU, which is not done."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # another thread writes a checkpoint meanwhile
        work()
    return graph


def on_side_stream(work: Callable[[], None], device: torch.device) -> None:
    """Does `work` on another stream than the default one, as PyTorch wants it before a capture."""
    if device.type != "cuda":
        return work()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream(device).wait_stream(stream)
    return None
