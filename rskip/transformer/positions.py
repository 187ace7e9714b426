"""Position embeddings. B batch, T length, C features."""

from __future__ import annotations

import math
from threading import Lock

import torch
from torch import Tensor, nn

_growing = Lock()


def token_positions(tokens: Tensor, padding_index: int) -> Tensor:
    """Positions of tokens: real tokens are counted from `padding_index` + 1, and padding gets `padding_index`.

    This is fairseq's numbering, so its learned positions load unchanged, and padding on either side has no effect.
    Shape: (B, T) -> (B, T).
    """
    real = tokens.ne(padding_index)
    return torch.cumsum(real, dim=1) * real + padding_index


class SinusoidalPositions(nn.Module):
    """Fixed sine and cosine embeddings (Vaswani et al. 2017, section 3.5), in fairseq's order: sines, then cosines.

    Shape: positions (B, T) -> (B, T, C). The table grows when a longer sentence arrives.
    """

    table: Tensor

    def __init__(self, length: int, features: int, padding_index: int) -> None:
        super().__init__()
        self.features = features
        self.padding_index = padding_index
        self.register_buffer("table", self._make_table(length + padding_index + 1), persistent=False)

    def _make_table(self, length: int) -> Tensor:
        half = self.features // 2
        frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
        angles = torch.arange(length, dtype=torch.float).unsqueeze(1) * frequencies
        table = torch.cat([angles.sin(), angles.cos()], dim=1)
        table[self.padding_index] = 0
        return table

    def grow(self, length: int) -> None:
        """Enlarges the table for sentences of `length` tokens. Other threads may read it meanwhile."""
        needed = length + self.padding_index + 1
        if needed > self.table.size(0):
            # an ordinary tensor even in inference mode, because the model may be trained later
            with _growing, torch.inference_mode(False):
                if needed > self.table.size(0):
                    self.table = self._make_table(max(needed, 2 * self.table.size(0))).to(self.table)

    @property
    def rows(self) -> Tensor:
        """The embedding of each position."""
        return self.table

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.table)


class LearnedPositions(nn.Embedding):
    """Learned embeddings of up to `length` positions. Shape: positions (B, T) -> (B, T, C)."""

    def __init__(self, length: int, features: int, padding_index: int) -> None:
        super().__init__(length + padding_index + 1, features, padding_index)
        self.length = length
        nn.init.normal_(self.weight, std=features**-0.5)
        nn.init.zeros_(self.weight[padding_index])

    @property
    def rows(self) -> Tensor:
        """The embedding of each position."""
        return self.weight

    def grow(self, length: int) -> None:
        """Raises ValueError for sentences that are longer than the learned positions."""
        if length > self.length:
            raise ValueError(
                f"a sentence has {length} tokens, but this model has only {self.length} learned positions: "
                "split or shorten the sentence"
            )


def build_positions(
    length: int, features: int, padding_index: int, *, learned: bool
) -> SinusoidalPositions | LearnedPositions:
    """Position embeddings for `length` tokens, learned or sinusoidal."""
    kind = LearnedPositions if learned else SinusoidalPositions
    return kind(length, features, padding_index)
