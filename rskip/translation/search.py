"""The search for translations of segments: in batches of like lengths, in this process or in workers beside each other.

B segments, S source length, T target length.
"""

from __future__ import annotations

import ctypes
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Any, Protocol

import torch
from msgspec import Meta
from torch import Tensor

from rskip.generation import Hypothesis, SearchOptions, SpecialTokens, beam_search
from rskip.generation.decoder import StepDecoder
from rskip.machine.torch_errors import out_of_memory
from rskip.machine.workers import WorkerProcesses
from rskip.settings.kinds import Index
from rskip.text import Dictionary

_TOKENS = SpecialTokens.of(Dictionary)
_USUAL_BEAM = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h

_model: TranslationModel  # a worker's own


class TranslationModel(StepDecoder, Protocol):
    """What a `Translator` asks of its model, which pickles: `Transformer` is one, `OnnxTransformer` another."""

    @property
    def device(self) -> torch.device:
        """Where it is."""
        ...

    @property
    def precision(self) -> str:
        """What it computes in, such as "float32"."""
        ...

    @property
    def connection(self) -> str:
        """The spec of its connections; where they differ, the encoder's / the decoder's."""
        ...

    @property
    def max_source_positions(self) -> int | None:
        """The longest source, its end included, in tokens; None where any length will do."""
        ...

    @property
    def trained_source_positions(self) -> int:
        """The longest source that fairseq would have trained on."""
        ...

    def move(self, device: torch.device) -> None:
        """Moves it to the device. Raises `ValueError` where it can't compute there."""
        ...

    def encode(self, source: Tensor, *, padded: bool | None = None) -> Any:
        """The memory, which `start` takes, of source tokens (B, S), filled up with padding on the right.

        padded: whether there is any; None: not known.
        """
        ...


@dataclass(frozen=True)
class Segment:
    """What is translated as one: a sentence or a part of one.

    source: indices of its tokens, the end included.
    prefix: indices of the target tokens that its translation begins with.
    """

    source: list[int]
    prefix: list[int]


SearchBatches = Callable[[Sequence[Sequence[Segment]], SearchOptions], Iterator[list[list[Hypothesis]]]]


def search_segments(
    search: SearchBatches, segments: Sequence[Segment], options: SearchOptions, *, max_tokens: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each segment, in the order of the segments.

    :param search: where the batches are searched, such as `partial(search_batches, model)`.
    :param max_tokens: see `length_batches`.
    """
    batches = length_batches([len(segment.source) for segment in segments], max_tokens=max_tokens, beam=options.beam)
    found: list[list[Hypothesis]] = [[] for _ in segments]
    for batch, hypotheses in zip(
        batches, search([[segments[index] for index in batch] for batch in batches], options), strict=True
    ):
        for index, each in zip(batch, hypotheses, strict=True):
            found[index] = each
    return found


def length_batches(lengths: Sequence[int], *, max_tokens: int, beam: int) -> list[list[int]]:
    """Indices of all sentences in batches, the longest sentences first.

    A batch filled up to its longest sentence has at most `max_tokens` tokens, fewer in proportion where the beam is
    wider than 4, since memory grows with it. A longer sentence is a batch of its own.

    :param lengths: tokens of each sentence.
    """
    room = max_tokens * _USUAL_BEAM // max(beam, _USUAL_BEAM)
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def search_batches(
    model: TranslationModel,
    batches: Sequence[Sequence[Segment]],
    options: SearchOptions,
    *,
    each_step: Callable[[int], None] | None = None,
) -> Iterator[list[list[Hypothesis]]]:
    """`search_batch` of one after the other. `each_step` is called with the number of each batch's steps, from 1."""
    for batch in batches:
        watched: Any = model if each_step is None else _Watched(model, each_step)
        yield search_batch(watched, batch, options)


class _Watched:
    """A model that counts its steps."""

    def __init__(self, model: TranslationModel, each_step: Callable[[int], None]) -> None:
        self._model, self._each_step, self._steps = model, each_step, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        self._steps += 1
        self._each_step(self._steps)
        return self._model.step(tokens, state)


def search_batch(
    model: TranslationModel, segments: Sequence[Segment], options: SearchOptions
) -> list[list[Hypothesis]]:
    """The best hypotheses of each segment.

    :raises ValueError: not enough memory on the device.
    """
    device = model.device
    source = _padded([segment.source for segment in segments])  # (B, S)
    prefix = _padded([segment.prefix for segment in segments]) if any(segment.prefix for segment in segments) else None
    lengths = [len(segment.source) for segment in segments]
    try:
        with torch.inference_mode():
            return beam_search(
                model,
                model.encode(source.to(device, non_blocking=True), padded=min(lengths) < max(lengths)),
                options,
                source_lengths=torch.tensor(lengths).to(device, non_blocking=True),
                prefix=prefix,
                special=_TOKENS,
            )
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise ValueError(
            f"not enough memory on the device for {len(segments)} sentences of up to {source.size(1):,} tokens: "
            "give a smaller max_tokens or beam, or split long sentences (too_long)"
        ) from error


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([[*row, *[_TOKENS.padding] * (length - len(row))] for row in rows])


class Workers:
    """`count` processes, each with a copy of a model on the CPU and its share of PyTorch's threads.

    A context manager: they end with the block, and with the process that started them, whatever ends it.

    :raises ValueError: fewer than one, or a model that is on another device.
    """

    def __init__(self, model: TranslationModel, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} worker processes: expected at least 1")
        if (device := model.device).type != "cpu":
            raise ValueError(f"worker processes are for a model on the CPU, and this one is on {device}: use 1 worker")
        threads = max(1, torch.get_num_threads() // count)
        # pickled here: multiprocessing would move the parameters to shared memory, of which containers have little
        self._processes = WorkerProcesses(count, _load_model, pickle.dumps(model), threads)

    def search(
        self, batches: Sequence[Sequence[Segment]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """As `search_batch` of each batch. Threads may share it.

        :raises ValueError: what `search_batch` raises, or a process was ended.
        """
        try:
            for batch in self._processes.pool.map(_search, batches, repeat(options)):
                yield rebuilt(batch)
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


def _load_model(model: bytes, threads: int) -> None:
    global _model
    _keep_freed_memory()
    torch.set_num_threads(threads)
    _model = pickle.loads(model)


def _keep_freed_memory() -> None:
    """Logits of every step are as large as those of the step before: allocated again they cost a tenth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _search(batch: Sequence[Segment], options: SearchOptions) -> FlatBatch:
    return flat(search_batch(_model, batch, options))


_Score = Annotated[float, Meta(extra={"also": (math.inf, -math.inf)})]
_FlatHypothesis = tuple[list[Index], _Score, list[_Score] | None, list[list[float]] | None]
FlatBatch = list[list[_FlatHypothesis]]


def flat(found: Sequence[Sequence[Hypothesis]]) -> FlatBatch:
    """A batch's hypotheses as plain values, which JSON takes too."""
    return [[_flat(each) for each in hypotheses] for hypotheses in found]


def rebuilt(values: FlatBatch) -> list[list[Hypothesis]]:
    """What `flat` was given."""
    return [[_rebuilt(*each) for each in hypotheses] for hypotheses in values]


def _flat(hypothesis: Hypothesis) -> _FlatHypothesis:
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
