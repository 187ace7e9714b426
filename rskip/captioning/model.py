"""The captioning Transformer. B batch, N features of an image, C features of the model, T caption length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rskip.captioning.config import CaptioningConfig
from rskip.machine.extras import extra
from rskip.transformer.decoder import Decoder
from rskip.transformer.dropout import Dropout
from rskip.transformer.embedding import build_token_embedding
from rskip.transformer.encoder import EncoderStack, Memory
from rskip.transformer.model import EncoderDecoder
from rskip.transformer.positions import SinusoidalPositions

with extra("captioning"):
    import numpy as np

if TYPE_CHECKING:
    from rskip.captioning.features import Features

_FIRST_GRID = 32  # rows or columns that the table of positions has from the start


class GridPositions(nn.Module):
    """2-D sinusoidal positions: half of the features tell the row, half the column. Nothing is learned."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.along = SinusoidalPositions(_FIRST_GRID, features // 2, padding_index=0)

    def forward(self, grids: Tensor, count: int) -> Tensor:
        """Of `count` cells of grids (B, 2) of so many rows and columns, which stand row by row. Shape: (B, N, C).

        What is beyond a grid's cells gets zeros.
        """
        self.along.grow(int(grids.max()))
        cell = torch.arange(count, device=grids.device)
        columns = grids[:, 1:]
        inside = cell < grids.prod(1, keepdim=True)  # (B, N)
        row, column = (inside * (1 + each) for each in (cell // columns, cell % columns))
        return torch.cat([self.along(row), self.along(column)], dim=2)


class FeatureEncoder(EncoderStack):
    """Image features, projected, and a stack of encoder layers."""

    config: CaptioningConfig

    def __init__(self, config: CaptioningConfig) -> None:
        super().__init__()
        features = config.encoder_embed_dim
        self.config = config
        self.projection = nn.Linear(config.feature_dim, features)
        nn.init.xavier_uniform_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        self.embed_positions = GridPositions(features) if config.grid_positions else None
        self.layernorm_embedding = nn.LayerNorm(features) if config.layernorm_embedding else None
        self.dropout = Dropout(config.dropout)
        self.build_layers(config)

    def encode(self, features: Tensor, padding: Tensor | None = None, grids: Tensor | None = None) -> Memory:
        """Image features to a memory. See `CaptioningTransformer.encode`."""
        x = self.projection(features)  # (B, N, C)
        if self.embed_positions is not None:
            if grids is None:
                raise ValueError("got features of regions, expected cells of a grid, as in the model's training")
            x = x + self.embed_positions(grids, features.size(1)).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        if padding is None:
            padding = torch.zeros(features.shape[:2], dtype=torch.bool, device=features.device)
            return self.run_layers(self.dropout(x), padding, padded=False)
        return self.run_layers(self.dropout(x), padding)

    def forward(self, features: Tensor, padding: Tensor | None = None, grids: Tensor | None = None) -> Memory:
        return self.encode(features, padding, grids)


class CaptioningTransformer(EncoderDecoder):
    """Image features to words: a Transformer whose encoder reads projected features (SAS section 4.3).

    Its decoder is the Transformer's own, and every block of both stacks is joined by a chosen connection. An image has
    any number of features, cells of a grid or regions.
    """

    config: CaptioningConfig

    def __init__(self, config: CaptioningConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = FeatureEncoder(config)
        words = build_token_embedding(config.vocabulary, config.decoder_embed_dim, config.padding_index)
        self.decoder = Decoder(config, words)

    def encode(self, features: Tensor, padding: Tensor | None = None, grids: Tensor | None = None) -> Memory:
        """Features (B, N, feature_dim) to the memory that the decoder attends to.

        :param padding: (B, N), true where an image has no further feature; None: all have N.
        :param grids: (B, 2) rows and columns, where the features are a grid's cells, row by row.
        :raises ValueError: the model reads grids and is given none.
        """
        return self.encoder.encode(features.to(self.decoder.embed_tokens.weight.dtype), padding, grids)

    def forward(self, features: Tensor, padding: Tensor | None, grids: Tensor | None, prefix: Tensor) -> Tensor:
        """Logits (B, T, V) for features and the captions' prefix (B, T)."""
        return self.decode(prefix, self.encode(features, padding, grids))


def batch_features(features: Sequence[Features]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features of several images as `encode` takes them: (B, N, C) in float32, padding (B, N), grids (B, 2) or None.

    :raises ValueError: grids and regions in one batch, or features of several dimensions.
    """
    if len({each.grid is None for each in features}) > 1 or len({each.values.shape[1] for each in features}) > 1:
        raise ValueError("features of different kinds in one batch: give features of one backbone")
    counts = torch.tensor([len(each.values) for each in features])
    longest = int(counts.max())
    batch = np.zeros((len(features), longest, features[0].values.shape[1]), dtype=np.float32)
    for row, each in zip(batch, features, strict=True):
        row[: len(each.values)] = each.values
    padding = torch.arange(longest) >= counts[:, None]
    grids = None if features[0].grid is None else torch.tensor([each.grid for each in features])
    return torch.from_numpy(batch), padding, grids
