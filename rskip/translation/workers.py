"""Searches for translations in several parallel processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import numpy

from rskip.cpu.threads import set_threads, threads
from rskip.generation import Hypothesis, SearchOptions
from rskip.machine.memory import keep_freed_memory
from rskip.machine.workers import WorkerProcesses
from rskip.translation.search import SEEDS, Segment, TranslationModel, search_batch

_model: TranslationModel | Exception  # the worker's copy, or the reason why it has none


class Workers:
    """A `Searcher` of `count` processes, each with a copy of a model on the CPU and its share of the threads::

        with Workers(translator.model, 4) as workers:
            translator.translate(sentences, searcher=workers)

    Use it for many sentences on a CPU, where several threads on one batch are slower. Each process starts in a few
    seconds and needs as much memory as this one. The processes end with the block or with their parent process. A
    script needs `if __name__ == "__main__":`, as always with Python's multiprocessing.

    :raises ValueError: the model is not on the CPU.
    """

    def __init__(self, model: TranslationModel, count: int) -> None:
        if (device := model.device).type != "cpu":
            raise ValueError(f"the model is on {device}, but worker processes need a model on the CPU: use 1 worker")
        share = max(1, threads() // count)
        # pickled here, since multiprocessing would move the parameters to shared memory, which is small in containers
        self._processes = WorkerProcesses(count, _load_model, pickle.dumps(model), share)

    def __call__(
        self, batches: Sequence[Sequence[Segment]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """Searches the batches in parallel and yields the results in order. It is thread-safe."""
        each = [options.of_part(number * SEEDS) for number in range(len(batches))]
        try:
            yield from self._processes.pool.map(_search, batches, each)
        except BrokenProcessPool as error:
            raise ValueError(
                "a worker process was killed, perhaps because the memory is full: use fewer workers, or smaller batches"
            ) from error

    def close(self) -> None:
        """Ends the processes immediately."""
        self._processes.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _load_model(model: bytes, share: int) -> None:
    global _model
    keep_freed_memory()  # allocating each step's logits again takes a tenth of the time
    set_threads(share)
    try:
        _model = pickle.loads(model)
    except (OSError, ValueError) as error:  # its file was removed or replaced: each search tells
        _model = error
    set_threads(share)  # of PyTorch too, if the model needed it


def _search(batch: Sequence[Segment], options: SearchOptions) -> list[list[Hypothesis]]:
    if isinstance(_model, Exception):
        raise _model
    return [list(map(_in_numpy, found)) for found in search_batch(_model, batch, options)]


def _in_numpy(found: Hypothesis) -> Hypothesis:
    """The hypothesis with NumPy arrays: each tensor would need a file in shared memory."""
    values = {name: getattr(found, name) for name in ("tokens", "token_scores", "attention")}
    arrays: dict[str, Any] = {name: numpy.asarray(each) for name, each in values.items() if each is not None}
    return replace(found, **arrays)
