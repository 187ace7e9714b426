"""The search over the vocabulary. B sentences, K beams, V vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_STRIPES = 16  # a sentence's logits are first compared in so many stripes at once


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first, each (B, N): total log-probability, beam, token."""

    scores: Tensor
    beams: Tensor
    tokens: Tensor


def log_normaliser(logits: Tensor, scratch: Tensor) -> Tensor:
    """log Σ exp(logits) over the vocabulary, in one pass where no exponential leaves float32's range.

    Shape: (B, K, V) float32 -> (B, K). `scratch` has room for B·K·V numbers, so that no memory is asked for.
    """
    total = torch.exp(logits, out=scratch[: logits.numel()].view(logits.shape)).sum(-1)
    if bool(((total > 1e-30) & (total < torch.inf)).all()):
        return total.log()
    return logits.logsumexp(-1)


def best_candidates(logits: Tensor, offsets: Tensor, count: int) -> Candidates:
    """The `count` best of logits (B, K, V) + offsets (B, K), over all beams of each sentence.

    On CPUs only the sixteenths of the vocabulary's columns that hold a best element are looked at closely: a stripe's
    maximum is a vector operation, and the best `count` elements lie in the columns with the best `count` maxima.
    """
    sentences, beams, vocabulary = logits.shape
    columns = vocabulary // _STRIPES
    if logits.device.type != "cpu" or beams * columns < 64 * count:
        scores, index = (logits + offsets[:, :, None]).view(sentences, -1).topk(count)
        return Candidates(scores, index // vocabulary, index % vocabulary)
    striped = columns * _STRIPES
    maxima = logits[:, :, :striped].view(sentences, beams, _STRIPES, columns).amax(2).add_(offsets[:, :, None])
    best = maxima.view(sentences, -1).topk(count, sorted=False)[1]  # (B, N)
    beam = best // columns
    first = beam * vocabulary + best % columns
    index = (first[:, :, None] + torch.arange(0, striped, columns)).view(sentences, -1)
    owner = beam.repeat_interleave(_STRIPES, 1)
    if striped < vocabulary:
        rest = torch.arange(beams)[:, None] * vocabulary + torch.arange(striped, vocabulary)
        index = torch.cat([index, rest.view(1, -1).expand(sentences, -1)], 1)
        owner = torch.cat([owner, torch.arange(beams).repeat_interleave(vocabulary - striped).expand(sentences, -1)], 1)
    close = logits.view(sentences, -1).gather(1, index) + offsets.gather(1, owner)
    scores, chosen = close.topk(count)
    index = index.gather(1, chosen)
    beam = index // vocabulary
    return Candidates(scores, beam, index - beam * vocabulary)
