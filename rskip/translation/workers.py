"""Processes that search beside each other: on a CPU they do more together than as many threads on one batch."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat
from typing import Any

import torch

from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.workers import WorkerProcesses
from rskip.transformer import Transformer
from rskip.translation.piece_search import Piece, search_batch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h

_model: Transformer  # a worker's own


class Workers:
    """`count` processes, each with a copy of a model on the CPU and its share of PyTorch's threads.

    A context manager: they end with the block, and with the process that started them, whatever ends it.

    :raises ValueError: fewer than one, or a model that is on another device.
    """

    def __init__(self, model: Transformer, count: int) -> None:
        device = model.encoder.embed_tokens.weight.device
        if count < 1:
            raise ValueError(f"{count} worker processes: expected at least 1")
        if device.type != "cpu":
            raise ValueError(f"worker processes are for a model on the CPU, and this one is on {device}: use 1 worker")
        threads = max(1, torch.get_num_threads() // count)
        # pickled here: multiprocessing would move the parameters to shared memory, of which containers have little
        self._processes = WorkerProcesses(count, _begin, pickle.dumps(model), threads)

    def search(
        self, batches: Sequence[Sequence[Piece]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """As `search_batch` of each batch. Threads may share it.

        :raises ValueError: what `search_batch` raises, or a process was ended.
        """
        try:
            for batch in self._processes.pool.map(_search, batches, repeat(options)):
                yield [[_rebuilt(*each) for each in hypotheses] for hypotheses in batch]
        except BrokenProcessPool as error:
            raise ValueError(
                "a worker process was ended, perhaps for want of memory: use fewer workers, or smaller batches"
            ) from error

    def close(self) -> None:
        """Ends the processes, in the middle of what they do."""
        self._processes.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begin(model: bytes, threads: int) -> None:
    global _model
    _keep_freed_memory()
    torch.set_num_threads(threads)
    _model = pickle.loads(model)


def _keep_freed_memory() -> None:
    """Logits of every step are as large as those of the step before: asked for anew they cost a tenth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _search(batch: Sequence[Piece], options: SearchOptions) -> list[list[tuple[Any, ...]]]:
    return [[_flat(each) for each in hypotheses] for hypotheses in search_batch(_model, batch, options)]


def _flat(hypothesis: Hypothesis) -> tuple[Any, ...]:
    """Without tensors, which would travel between processes through shared memory, one file each."""
    scores, attention = hypothesis.token_scores, hypothesis.attention
    return (
        hypothesis.tokens.tolist(),
        hypothesis.score,
        None if scores is None else scores.tolist(),
        None if attention is None else attention.tolist(),
    )


def _rebuilt(
    tokens: list[int], score: float, token_scores: list[float] | None, attention: list[list[float]] | None
) -> Hypothesis:
    return Hypothesis(
        torch.tensor(tokens),
        score,
        None if token_scores is None else torch.tensor(token_scores),
        None if attention is None else torch.tensor(attention),
    )
