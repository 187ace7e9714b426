"""The captioning Transformer. B batch, N features per image, C model dimension, T caption length, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rskip.captioning.config import CaptioningConfig
from rskip.extras import extra
from rskip.generation import Hypothesis, SearchOptions, SpecialTokens, find_search
from rskip.text import Dictionary
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
    from rskip.cpu import CpuTransformer

_WORDS = SpecialTokens.of(Dictionary)
_FIRST_GRID = 32  # initial rows and columns of the table of positions


class GridPositions(nn.Module):
    """2-D sinusoidal positions, not learned: half of the dimensions encode the row, half the column."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.along = SinusoidalPositions(_FIRST_GRID, features // 2, padding_index=0)

    def forward(self, grids: Tensor, count: int) -> Tensor:
        """Positions of `count` cells, in row-major order, of grids with rows and columns (B, 2). Shape: (B, N, C)

        Positions beyond the cells of a grid are zeros.
        """
        self.along.grow(int(grids.max()))
        cell = torch.arange(count, device=grids.device)
        columns = grids[:, 1:]
        inside = cell < grids.prod(1, keepdim=True)  # (B, N)
        row, column = (inside * (1 + each) for each in (cell // columns, cell % columns))
        return torch.cat([self.along(row), self.along(column)], dim=2)


class FeatureEncoder(EncoderStack):
    """Projects image features and applies a stack of encoder layers."""

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
        """Encodes image features to a memory; see `CaptioningTransformer.encode`."""
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
    """A Transformer that turns image features into words; its encoder reads projected features (SAS section 4.3).

    Its decoder is that of the Transformer. Every block of both stacks has the chosen connection. An image has any
    number of features, which are cells of a grid or regions.
    """

    config: CaptioningConfig

    def __init__(self, config: CaptioningConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = FeatureEncoder(config)
        words = build_token_embedding(config.vocabulary, config.decoder_embed_dim, config.padding_index)
        self.decoder = Decoder(config, words)

    def encode(self, features: Tensor, padding: Tensor | None = None, grids: Tensor | None = None) -> Memory:
        """Encodes features (B, N, feature_dim) to the memory that the decoder attends to.

        :param padding: (B, N), true at positions after the last feature of an image; None: all images have N features.
        :param grids: (B, 2) rows and columns, if the features are the cells of a grid in row-major order.
        :raises ValueError: the model needs grids, but `grids` is None.
        """
        return self.encoder.encode(features.to(self.decoder.embed_tokens.weight.dtype), padding, grids)

    def forward(self, features: Tensor, padding: Tensor | None, grids: Tensor | None, prefix: Tensor) -> Tensor:
        """Logits (B, T, V) for features and prefixes of captions (B, T)."""
        return self.decode(prefix, self.encode(features, padding, grids))


def batch_features(features: Sequence[Features]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Features of several images for `encode`: (B, N, C) in float32, padding (B, N), grids (B, 2) or None.

    :raises ValueError: the batch mixes grids and regions, or features of several dimensions.
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


def search_captions(
    model: CaptioningTransformer | CpuTransformer,
    features: Tensor,
    padding: Tensor,
    grids: Tensor | None,
    options: SearchOptions,
    special: SpecialTokens = _WORDS,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each image, the best first, on the device of the model.

    :param features, padding, grids: the result of `batch_features`.
    :param special: special tokens; by default those of `rskip.text.Dictionary`.
    """
    device = model.device
    padding = padding.to(device)
    with torch.no_grad():
        memory = model.encode(features.to(device), padding, None if grids is None else grids.to(device))
    search = find_search(device)
    return search(model, memory, options, source_lengths=(~padding).sum(1), special=special)
