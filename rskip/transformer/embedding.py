"""From tokens to the first layer's input. B batch, T length, C features."""

from __future__ import annotations

import math

from torch import Tensor, nn

from rskip.transformer.positions import LearnedPositions, SinusoidalPositions


def build_token_embedding(vocabulary: int, features: int, padding_index: int) -> nn.Embedding:
    """An embedding drawn from N(0, 1/features), with a zero vector for padding."""
    embedding = nn.Embedding(vocabulary, features, padding_index)
    nn.init.normal_(embedding.weight, std=features**-0.5)
    nn.init.zeros_(embedding.weight[padding_index])
    return embedding


def build_positions(
    length: int, features: int, padding_index: int, *, learned: bool
) -> SinusoidalPositions | LearnedPositions:
    """Position embeddings for `length` tokens, learned or sinusoidal."""
    kind = LearnedPositions if learned else SinusoidalPositions
    return kind(length, features, padding_index)


def embed(
    tokens: Tensor,
    positions: Tensor,
    embed_tokens: nn.Embedding,
    embed_positions: SinusoidalPositions | LearnedPositions | None,
    *,
    scaled: bool,
) -> Tensor:
    """Token embeddings times sqrt(C) where `scaled`, plus positions. Shape: (B, T), (B, T) -> (B, T, C)."""
    x = embed_tokens(tokens)  # (B, T, C)
    if scaled:
        x = x * math.sqrt(x.size(-1))
    if embed_positions is not None:
        x = x + embed_positions(positions)
    return x
