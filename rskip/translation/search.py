"""Searches for translations of segments, in batches of similar lengths.

B segments, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rskip.generation import Hypothesis, SearchOptions, SpecialTokens
from rskip.generation.decoder import StepDecoder
from rskip.generation.runtime import RuntimeModel
from rskip.machine.torch_errors import memory_as_mistake
from rskip.text import Dictionary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_TOKENS = {
    "end": SpecialTokens.of(Dictionary),
    "begin": SpecialTokens.of(Dictionary, start=Dictionary.bos_index),
}
_USUAL_BEAM = 4
SEEDS = 0x9E3779B97F4A7C15  # between two batches' seeds


class TranslationModel(Protocol):
    """The interface of a `Translator`'s model, which can be pickled."""

    @property
    def device(self) -> Any:
        """The model's device: a `torch.device`, or a `CpuDevice` of the same name and `type`."""

    @property
    def precision(self) -> str:
        """The precision of the computation, such as "float32"."""

    @property
    def connection(self) -> str:
        """The spec of its connections, or if they differ, those of encoder / decoder."""

    @property
    def max_source_positions(self) -> int | None:
        """The maximum length of a source in tokens, including its end; None without a limit."""

    @property
    def target_start(self) -> Literal["end", "begin"]:
        """The token of the dictionary that targets start with."""

    @property
    def trained_source_positions(self) -> int:
        """The maximum source length on which fairseq would have trained."""

    @property
    def max_positions(self) -> int | None:
        """The maximum length of a target in tokens, including its end; None without a limit."""


class TorchModel(TranslationModel, StepDecoder, Protocol):
    """A `TranslationModel` that PyTorch's search decodes: `Transformer`, `CpuTransformer`, `OnnxTransformer`."""

    def move(self, device: torch.device) -> None:
        """Moves the model to the device. Raises `ValueError` if it can't compute there."""

    def encode(self, source: Tensor, *, padded: bool | None = None) -> Any:
        """The memory of source tokens (B, S), as an argument of `start`. The tokens are padded on the right.

        padded: whether there is any padding; None if unknown.
        """


@dataclass(frozen=True)
class Segment:
    """A unit of translation: a sentence or a part of one.

    source: indices of its tokens, including the end.
    prefix: indices of the first tokens of its translation.
    special: the tokens that its translation starts and ends with, the same in all segments of a batch; None: the
        model's usual ones.
    """

    source: list[int]
    prefix: list[int]
    special: SpecialTokens | None = None


class Searcher(Protocol):
    """Finds the best hypotheses of the segments of each batch. It is an argument of `Translator.translate`.

    `ModelSearcher` searches in this process, `rskip.translation.workers.Workers` in several processes.
    """

    def __call__(
        self, batches: Sequence[Sequence[Segment]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]: ...


@dataclass(frozen=True)
class ModelSearcher:
    """Searches with a model in this process.

    each_step: see `rskip.generation.beam_search`.
    """

    model: TranslationModel
    each_step: Callable[[int], None] | None = None

    def __call__(
        self, batches: Sequence[Sequence[Segment]], options: SearchOptions
    ) -> Iterator[list[list[Hypothesis]]]:
        """Raises `ValueError` if the device runs out of memory."""
        return (
            search_batch(self.model, batch, options.of_part(number * SEEDS), each_step=self.each_step)
            for number, batch in enumerate(batches)
        )


def search_segments(
    searcher: Searcher, segments: Sequence[Segment], options: SearchOptions, *, max_tokens: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each segment, in the order of the segments.

    :param max_tokens: see `length_batches`.
    """
    batches = length_batches([len(segment.source) for segment in segments], max_tokens=max_tokens, beam=options.beam)
    found: list[list[Hypothesis]] = [[] for _ in segments]
    for batch, hypotheses in zip(
        batches, searcher([[segments[index] for index in batch] for batch in batches], options), strict=True
    ):
        for index, each in zip(batch, hypotheses, strict=True):
            found[index] = each
    return found


def length_batches(lengths: Sequence[int], *, max_tokens: int, beam: int) -> list[list[int]]:
    """Indices of all sentences in batches, the longest sentences first.

    A batch has at most `max_tokens` tokens including padding. For beams over 4 the limit is proportionally lower, since
    memory grows with the beam. A longer sentence forms a separate batch.

    :param lengths: number of tokens in each sentence.
    """
    room = max_tokens * _USUAL_BEAM // max(beam, _USUAL_BEAM)
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def search_batch(
    model: TranslationModel,
    segments: Sequence[Segment],
    options: SearchOptions,
    *,
    each_step: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each segment."""
    special = segments[0].special or _TOKENS[model.target_start]
    prefixes = padded([segment.prefix for segment in segments]) if any(each.prefix for each in segments) else None
    sources = [segment.source for segment in segments]
    batch = f"{len(segments)} sentences of up to {max(map(len, sources)):,} tokens"
    advice = "give a smaller max_tokens or beam, or split long sentences (too_long)"
    with memory_as_mistake(f" on the device for {batch}: {advice}"):
        if isinstance(model, RuntimeModel):
            return model.search(sources, options, prefixes=prefixes, special=special, each_step=each_step)
        return _search_in_torch(model, sources, options, prefixes=prefixes, special=special, each_step=each_step)


def _search_in_torch(
    model: Any,
    sources: Sequence[Sequence[int]],
    options: SearchOptions,
    *,
    prefixes: Sequence[Sequence[int]] | None,
    special: SpecialTokens,
    each_step: Callable[[int], None] | None,
) -> list[list[Hypothesis]]:
    import torch

    from rskip.generation import EnsembleDecoder, find_search

    if isinstance(model, EnsembleDecoder) and options.temperature != 1:  # it divides each model's logits
        model, options = type(model)(model.decoders, temperature=options.temperature), replace(options, temperature=1.0)
    device, lengths = model.device, [len(source) for source in sources]
    source = torch.tensor(padded(sources))  # (B, S)
    with torch.inference_mode():
        return find_search(device)(
            model,
            model.encode(source.to(device, non_blocking=True), padded=min(lengths) < max(lengths)),
            options,
            source_lengths=torch.tensor(lengths).to(device, non_blocking=True),
            prefix=None if prefixes is None else torch.tensor(prefixes),
            special=special,
            each_step=each_step,
        )


def padded(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The rows with padding at their ends, all of the same length."""
    length = max(map(len, rows))
    return [[*row, *[Dictionary.pad_index] * (length - len(row))] for row in rows]
