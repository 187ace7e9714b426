"""The search for translations of model tokens, in batches. B pieces, S source length, T target length."""

from __future__ import annotations

from collections.abc import Sequence
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


def search_pieces(
    model: Transformer, pieces: Sequence[Piece], options: SearchOptions, *, max_tokens: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each piece, in the pieces' order; attention, where asked for, without padding.

    :param max_tokens: see `length_batches`.
    :raises ValueError: not enough memory on the device.
    """
    if not pieces:
        return []
    lengths = [len(piece.source) for piece in pieces]
    found: list[list[Hypothesis]] = [[] for _ in pieces]
    for batch in length_batches(lengths, max_tokens=max_tokens, beam=options.beam):
        try:
            hypotheses = _search(model, [pieces[index] for index in batch], options)
        except torch.OutOfMemoryError as error:
            raise ValueError(
                f"not enough memory on the device for {len(batch)} sentences of up to {lengths[batch[0]]:,} tokens: "
                "give a smaller max_tokens or beam"
            ) from error
        for index, each in zip(batch, hypotheses, strict=True):
            found[index] = each
    return found


def _search(model: Transformer, pieces: Sequence[Piece], options: SearchOptions) -> list[list[Hypothesis]]:
    device = model.encoder.embed_tokens.weight.device
    source = _padded([piece.source for piece in pieces])  # (B, S)
    prefix = _padded([piece.prefix for piece in pieces]) if any(piece.prefix for piece in pieces) else None
    lengths = torch.tensor([len(piece.source) for piece in pieces])
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


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([[*row, *[Dictionary.pad_index] * (length - len(row))] for row in rows])
