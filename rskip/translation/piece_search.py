"""The search for translations of model tokens, in batches. B pieces, S source length, T target length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rskip.generation import Hypothesis, SearchOptions, beam_search
from rskip.text import Dictionary
from rskip.transformer import Transformer
from rskip.translation.batches import length_batches


@dataclass(frozen=True)
class Piece:
    """What is translated as one: a sentence or a part of one.

    source: indices of its tokens, the end included.
    prefix: indices of the target tokens that its translation begins with.
    """

    source: list[int]
    prefix: list[int]


SearchBatches = Callable[[Sequence[Sequence[Piece]], SearchOptions], Iterator[list[list[Hypothesis]]]]


def search_pieces(
    search: SearchBatches, pieces: Sequence[Piece], options: SearchOptions, *, max_tokens: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each piece, in the order of the pieces.

    :param search: where the batches are searched, such as `partial(search_batches, model)`.
    :param max_tokens: see `length_batches`.
    """
    batches = length_batches([len(piece.source) for piece in pieces], max_tokens=max_tokens, beam=options.beam)
    found: list[list[Hypothesis]] = [[] for _ in pieces]
    for batch, hypotheses in zip(
        batches, search([[pieces[index] for index in batch] for batch in batches], options), strict=True
    ):
        for index, each in zip(batch, hypotheses, strict=True):
            found[index] = each
    return found


def search_batches(
    model: Transformer, batches: Sequence[Sequence[Piece]], options: SearchOptions
) -> Iterator[list[list[Hypothesis]]]:
    """`search_batch` of one after the other."""
    return (search_batch(model, batch, options) for batch in batches)


def search_batch(model: Transformer, pieces: Sequence[Piece], options: SearchOptions) -> list[list[Hypothesis]]:
    """The best hypotheses of each piece.

    :raises ValueError: not enough memory on the device.
    """
    device = model.encoder.embed_tokens.weight.device
    source = _padded([piece.source for piece in pieces])  # (B, S)
    prefix = _padded([piece.prefix for piece in pieces]) if any(piece.prefix for piece in pieces) else None
    lengths = torch.tensor([len(piece.source) for piece in pieces])
    try:
        with torch.inference_mode():
            return beam_search(
                model,
                model.encode(source.to(device)),
                options,
                source_lengths=lengths.to(device),
                prefix=None if prefix is None else prefix.to(device),
                padding_index=Dictionary.pad_index,
                end_index=Dictionary.eos_index,
                unknown_index=Dictionary.unk_index,
            )
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"not enough memory on the device for {len(pieces)} sentences of up to {source.size(1):,} tokens: "
            "give a smaller max_tokens or beam"
        ) from error


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([[*row, *[Dictionary.pad_index] * (length - len(row))] for row in rows])
