"""From tokens to the first layer's input. B batch, T length, C features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rskip.transformer.config import DecoderConfig
from rskip.transformer.dropout import Dropout
from rskip.transformer.positions import build_positions, first_position


def build_token_embedding(vocabulary: int, features: int, padding_index: int | None) -> nn.Embedding:
    """An embedding drawn from N(0, 1/features), with a zero vector for padding, if there is any."""
    embedding = nn.Embedding(vocabulary, features, padding_index)
    nn.init.normal_(embedding.weight, std=features**-0.5)
    if padding_index is not None:
        nn.init.zeros_(embedding.weight[padding_index])
    return embedding


class EmbeddingModule(nn.Module):
    """The input of a stack: embeddings of tokens and positions, their normalisation, and dropout.

    The stacks derive from it, because its members belong to the stack itself in fairseq (`encoder.embed_tokens`).
    """

    def __init__(
        self, config: DecoderConfig, embed_tokens: nn.Embedding, *, max_length: int, learned_positions: bool
    ) -> None:
        super().__init__()
        features = embed_tokens.embedding_dim
        self.config = config
        self.embed_tokens = embed_tokens
        self.embed_scale = 1.0 if config.no_scale_embedding else math.sqrt(features)
        self.padding_index = embed_tokens.padding_idx
        self.embed_positions = (
            build_positions(max_length, features, self.padding_index, learned=learned_positions)
            if config.embeds_positions
            else None
        )
        self.layernorm_embedding = nn.LayerNorm(features) if config.layernorm_embedding else None
        self.dropout = Dropout(config.dropout)

    def embed(self, tokens: Tensor, positions: Tensor, *, length: int) -> Tensor:
        """Embeds tokens and their positions, in a sentence of `length`. Shape: (B, T), (B, T) -> (B, T, C)."""
        x = self.embed_tokens(tokens) * self.embed_scale  # (B, T, C)
        if self.embed_positions is not None:
            self.embed_positions.grow(length, positions)
            x = x + self.embed_positions(positions)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout(x)

    def position_table(self, length: int) -> Tensor:
        """The embeddings of the first `length` positions; zeros if the stack has none. Shape: (T, C)."""
        if self.embed_positions is None:
            return torch.zeros(length, self.embed_tokens.embedding_dim)
        self.embed_positions.grow(length)
        first = first_position(self.padding_index)
        return self.embed_positions.rows[first : first + length].detach()
