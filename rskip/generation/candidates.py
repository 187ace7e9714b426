"""The search over the vocabulary. B sentences, K beams, V vocabulary."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rskip.cpu.library import BLOCK, Best, Library, Vocabulary

_STRIPES = 16  # a sentence's logits are first compared in so many stripes at once
MOST_CANDIDATES = 64  # of the native search, which inserts each into a list


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first, each (B, N): total log-probability, beam, token."""

    scores: Tensor
    beams: Tensor
    tokens: Tensor


def on_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, which are on one device, on the CPU, after one wait for it."""
    device = tensors[0].device
    if device.type == "cpu":
        return tensors
    copies = tuple(each.to("cpu", non_blocking=device.type == "cuda") for each in tensors)
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return copies


class NativeScan:
    """One pass over logits (B, K, V) in float32 or bfloat16 by the native kernels.

    normaliser: (B, K), log Σ exp(logits) over the vocabulary. `best` is as `best_candidates`, of the same logits, of
    which some may have become smaller.
    """

    def __init__(self, logits: Tensor, library: Library) -> None:
        *shape, vocabulary = logits.shape
        self.logits, self.library = logits, library
        self.maxima = torch.empty(*shape, -(-vocabulary // BLOCK))
        self.normaliser = torch.empty(shape)
        arguments = Vocabulary(logits=logits, maxima=self.maxima, normalisers=self.normaliser, words=vocabulary)
        library.normalise(arguments, self.normaliser.numel(), work=logits.numel())

    def best(self, offsets: Tensor, count: int) -> Candidates:
        """The `count` best of logits + offsets (B, K), over all beams of each sentence; of equal ones the first."""
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
    """As `NativeScan`, by PyTorch, of float32 logits. `scratch`, for a CPU, has room for B·K·V numbers."""

    def __init__(self, logits: Tensor, scratch: Tensor | None) -> None:
        self.logits = logits
        self.normaliser = logits.logsumexp(-1) if scratch is None else log_normaliser(logits, scratch)

    def best(self, offsets: Tensor, count: int) -> Candidates:
        return best_candidates(self.logits, offsets, count)


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
