"""Position embeddings. B batch, T length, C features."""

from __future__ import annotations

import math
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

_growing = Lock()


def token_positions(tokens: Tensor, padding_index: int | None) -> Tensor:
    """Positions of tokens: real tokens are counted from `padding_index` + 1, and padding gets `padding_index`.

    This is fairseq's numbering, so its learned positions load unchanged, and padding on either side has no effect.
    Without padding, tokens are counted from 0. Shape: (B, T) -> (B, T), or (1, T) without padding.
    """
    if padding_index is None:
        return torch.arange(tokens.size(1), device=tokens.device)[None]
    real = tokens.ne(padding_index)
    return torch.cumsum(real, dim=1) * real + padding_index


def first_position(padding_index: int | None) -> int:
    """The embedding index of the first token's position, see `token_positions`."""
    return 0 if padding_index is None else padding_index + 1


class SinusoidalPositions(nn.Module):
    """Fixed sine and cosine embeddings (Vaswani et al. 2017, section 3.5), in fairseq's order: sines, then cosines.

    Shape: positions (B, T) -> (B, T, C). The table grows when a longer sentence arrives.
    """

    table: Tensor

    def __init__(self, length: int, features: int, padding_index: int | None) -> None:
        super().__init__()
        self.features = features
        self.padding_index = padding_index
        self.register_buffer("table", self._make_table(length + first_position(padding_index)), persistent=False)

    def _make_table(self, length: int) -> Tensor:
        half = self.features // 2
        frequencies = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / max(half - 1, 1)))
        angles = torch.arange(length, dtype=torch.float).unsqueeze(1) * frequencies
        table = torch.cat([angles.sin(), angles.cos()], dim=1)
        if self.padding_index is not None:
            table[self.padding_index] = 0
        return table

    def grow(self, length: int, positions: Tensor | None = None) -> None:
        """Enlarges the table for sentences of `length` tokens. Other threads may read it meanwhile."""
        needed = length + first_position(self.padding_index)
        if needed > self.table.size(0):
            # an ordinary tensor even in inference mode, because the model may be trained later
            with _growing, torch.inference_mode(False):
                if needed > self.table.size(0):
                    self.table = self._make_table(max(needed, 2 * self.table.size(0))).to(self.table)

    def reset_parameters(self) -> None:
        """Computes the table again, such as after `to_empty`."""
        with torch.inference_mode(False):
            self.table = self._make_table(self.table.size(0)).to(self.table)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        # After to_empty the table is arbitrary, and a state has none. With assign=True on the meta device there is no
        # device to take either: then the table is on the CPU, where states usually are.
        if self.table.is_meta:
            self.table = torch.empty_like(self.table, device="cpu")
        self.reset_parameters()

    @property
    def rows(self) -> Tensor:
        """The embedding of each position."""
        return self.table

    def forward(self, positions: Tensor) -> Tensor:
        return nn.functional.embedding(positions, self.table)


class LearnedPositions(nn.Embedding):
    """Learned embeddings of up to `length` positions. Shape: positions (B, T) -> (B, T, C)."""

    def __init__(self, length: int, features: int, padding_index: int | None) -> None:
        super().__init__(length + first_position(padding_index), features, padding_index)
        self.length = length
        nn.init.normal_(self.weight, std=features**-0.5)
        if padding_index is not None:
            nn.init.zeros_(self.weight[padding_index])

    @property
    def rows(self) -> Tensor:
        """The embedding of each position."""
        return self.weight

    def grow(self, length: int, positions: Tensor | None = None) -> None:
        """Raises ValueError for sentences that are longer than the learned positions.

        :param length: of the batch, with padding; its `positions` say the length without.
        """
        if length > self.length and positions is not None:
            length = int(positions.max()) + 1 - first_position(self.padding_idx)
        if length > self.length:
            raise ValueError(
                f"a sentence has {length} tokens, but this model has only {self.length} learned positions: "
                "split or shorten the sentence"
            )


def build_positions(
    length: int, features: int, padding_index: int | None, *, learned: bool
) -> SinusoidalPositions | LearnedPositions:
    """Position embeddings for `length` tokens, learned or sinusoidal."""
    kind = LearnedPositions if learned else SinusoidalPositions
    return kind(length, features, padding_index)
