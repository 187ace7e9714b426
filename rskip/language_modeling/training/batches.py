"""Training batches: sequences at random offsets of the text. B sequences, T positions."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.machine.ranks import Ranks


class TrainingBatches:
    """Draws sequences of the training text at random offsets, which may overlap.

    `batch(iteration)` is a pure function of seed and iteration, so a resumed training needs no other state. It is the
    same on every device and for any number of ranks.

    :param tokens: the text, which is moved to `device` once. Shape: (N,).
    :param batch_size: sequences per batch, over all ranks.
    :raises ValueError: the text is too short.
    """

    def __init__(
        self, tokens: Tensor, *, batch_size: int, context: int, seed: int, device: torch.device, ranks: Ranks
    ) -> None:
        if len(tokens) <= context:
            raise ValueError(
                f"the training text has {len(tokens):,} tokens: expected more than the context, {context:,}; "
                "give a longer text or a smaller context"
            )
        self._tokens = tokens.to(device)
        self._offsets, self._batch_size, self._seed, self._ranks = len(tokens) - context, batch_size, seed, ranks
        self._window = torch.arange(context + 1, device=device)

    def batch(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (B, T) of this rank's part of the batch."""
        generator = torch.Generator().manual_seed(iteration_seed(self._seed, iteration))
        offsets = torch.randint(self._offsets, (self._batch_size,), generator=generator)
        own = offsets[self._ranks.rank :: self._ranks.count].to(self._window.device)
        sequences = self._tokens[own[:, None] + self._window]
        return sequences[:, :-1], sequences[:, 1:]


def iteration_seed(seed: int, iteration: int, rank: int = 0) -> int:
    """A seed of 63 bits for the random numbers of an iteration, mixed as in SplitMix64."""
    z = seed * 0x9E3779B97F4A7C15 + iteration * 0xD1B54A32D192ED03 + rank * 0x8CB92BA72F3D8DD7
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = ((z ^ ((z % 2**64) >> shift)) * factor) % 2**64
    return (z ^ (z >> 31)) >> 1
