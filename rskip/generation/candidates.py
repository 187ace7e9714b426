"""Finds the best continuations over the vocabulary. B sentences, K beams, V vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rskip.cpu.library import Library
from rskip.cpu.structures import BLOCK, Best, Vocabulary

MAX_CANDIDATES = 64  # limit of the native search, which inserts each candidate into a list


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


class NativeScan:
    """A pass of the native kernels over logits (B, K, V) in float32 or bfloat16.

    normaliser: (B, K), log Σ exp(logits) over the vocabulary. `best` reads the logits again. Until then, the caller may
    decrease some of them.
    """

    def __init__(self, logits: Tensor, library: Library) -> None:
        *shape, vocabulary = logits.shape
        self.logits, self.library = logits, library
        self.maxima = torch.empty(*shape, -(-vocabulary // BLOCK))
        self.normaliser = torch.empty(shape)
        arguments = Vocabulary(logits=logits, maxima=self.maxima, normalisers=self.normaliser, words=vocabulary)
        library.normalise(arguments, self.normaliser.numel(), work=logits.numel())

    def best(self, offsets: Tensor, count: int) -> Candidates:
        """The `count` best of logits + offsets (B, K), over all beams of each sentence; of equals the first."""
        sentences, beams, vocabulary = self.logits.shape
        if offsets.shape != (sentences, beams) or count < 1:
            raise ValueError(
                f"offsets are {tuple(offsets.shape)} and the count is {count}: "
                f"expected ({sentences}, {beams}), one per beam, and 1 or more"
            )
        offsets = offsets.contiguous()
        found = Candidates(
            torch.empty(sentences, count), *(torch.empty(sentences, count, dtype=torch.long) for _ in range(2))
        )
        arguments = Best(
            logits=self.logits, maxima=self.maxima, offsets=offsets, scores=found.scores, beams=found.beams,
            tokens=found.tokens, count=count, width=beams, words=vocabulary,
        )  # fmt: skip
        self.library.best(arguments, sentences)
        return found


class Scan:
    """Like `NativeScan`, computed by PyTorch from float32 logits."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self.normaliser = logits.logsumexp(-1)

    def best(self, offsets: Tensor, count: int) -> Candidates:
        """The `count` best of logits + offsets (B, K), over all beams of each sentence."""
        sentences, _, vocabulary = self.logits.shape
        scores, index = (self.logits + offsets[:, :, None]).view(sentences, -1).topk(count)
        return Candidates(scores, index // vocabulary, index % vocabulary)
