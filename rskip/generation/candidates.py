"""Finds the best continuations over the vocabulary. B sentences, K beams, V vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first, each (B, N): total log-probability, beam, token."""

    scores: Tensor
    beams: Tensor
    tokens: Tensor


def on_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copies tensors of one device to the CPU, and waits for the device only once."""
    device = tensors[0].device
    if device.type == "cpu":
        return tensors
    copies = tuple(each.to("cpu", non_blocking=device.type == "cuda") for each in tensors)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return copies


class Scan:
    """A pass over float32 logits (B, K, V).

    normaliser: (B, K), log Σ exp(logits) over the vocabulary. `best` reads the logits again. Until then, the caller may
    decrease some of them.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.normaliser = logits.logsumexp(-1)

    def best(self, offsets: Tensor, count: int) -> Candidates:
        """The `count` best of logits + offsets (B, K), over all beams of each sentence."""
        sentences, _, vocabulary = self.logits.shape
        scores, index = (self.logits + offsets[:, :, None]).view(sentences, -1).topk(count)
        return Candidates(scores, index // vocabulary, index % vocabulary)
