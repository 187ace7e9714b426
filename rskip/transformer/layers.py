"""The layers of both stacks: branches joined by the connections that they are given.

B batch, T target length, S source length, H heads, C features. Member names are checkpoint API: fairseq's where the
part is the same, and `<branch>_connection` for the connection that joins a branch.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from rskip.connections import build_connection
from rskip.transformer.attention import KeyValue, MultiHeadAttention
from rskip.transformer.config import TransformerConfig
from rskip.transformer.dropout import Dropout
from rskip.transformer.feedforward import ACTIVATION_FUNCTIONS


class TransformerLayer(nn.Module):
    """What an encoder layer and a decoder layer share: self-attention and a feed-forward branch."""

    def __init__(
        self, config: TransformerConfig, *, features: int, inner_features: int, heads: int, connection: str
    ) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(features, heads, dropout=config.attention_dropout)
        self.self_attn_connection = build_connection(connection, features)
        self.fc1 = nn.Linear(features, inner_features)
        self.fc2 = nn.Linear(inner_features, features)
        self.ffn_connection = build_connection(connection, features)
        self.activation = ACTIVATION_FUNCTIONS[config.activation_fn]
        self.dropout = Dropout(config.dropout)
        self.activation_dropout = Dropout(config.activation_dropout)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward branch and its connection. Shape: (B, T, C) -> (B, T, C)."""
        inner = self.activation(self.fc1(self.ffn_connection.branch_input(x)))
        return self.ffn_connection(x, self.dropout(self.fc2(self.activation_dropout(inner))))


class EncoderLayer(TransformerLayer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(
            config,
            features=config.encoder_embed_dim,
            inner_features=config.encoder_ffn_embed_dim,
            heads=config.encoder_attention_heads,
            connection=config.encoder_connection,
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (B, S, C); mask (B, 1, 1, S), true where a key may be seen."""
        attended = self.self_attn_connection.branch_input(x)
        attended = self.self_attn(attended, self.self_attn.project(attended), mask)
        return self.feed_forward(self.self_attn_connection(x, self.dropout(attended)))


@dataclass
class LayerCache:
    """One decoder layer's keys and values: of the target so far, and of the memory."""

    target: KeyValue | None
    memory: KeyValue

    def reorder(self, index: Tensor) -> None:
        """Keeps the rows that `index` names, in its order."""
        self.target = self.target and self.target.reorder(index)
        self.memory = self.memory.reorder(index)


class DecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's memory, then feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(
            config,
            features=config.decoder_embed_dim,
            inner_features=config.decoder_ffn_embed_dim,
            heads=config.decoder_attention_heads,
            connection=config.decoder_connection,
        )
        self.encoder_attn = MultiHeadAttention(
            config.decoder_embed_dim,
            config.decoder_attention_heads,
            memory_features=config.encoder_embed_dim,
            dropout=config.attention_dropout,
        )
        self.encoder_attn_connection = build_connection(config.decoder_connection, config.decoder_embed_dim)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None, mask: Tensor | None) -> Tensor:
        """x (B, T, C), memory (B, S, C); `mask` None means plainly causal."""
        attended = self.self_attn_connection.branch_input(x)
        attended = self.self_attn(attended, self.self_attn.project(attended), mask, causal=mask is None)
        x = self.self_attn_connection(x, self.dropout(attended))
        return self.feed_forward(self._attend_to_memory(x, self.encoder_attn.project(memory), memory_mask))

    def step(self, x: Tensor, cache: LayerCache, memory_mask: Tensor | None) -> Tensor:
        """One position (B, 1, C) after those in the cache, which takes it in."""
        attended = self.self_attn_connection.branch_input(x)
        new = self.self_attn.project(attended)
        cache.target = cache.target.append(new) if cache.target else new
        x = self.self_attn_connection(x, self.dropout(self.self_attn(attended, cache.target)))
        return self.feed_forward(self._attend_to_memory(x, cache.memory, memory_mask))

    def _attend_to_memory(self, x: Tensor, memory: KeyValue, memory_mask: Tensor | None) -> Tensor:
        attended = self.encoder_attn(self.encoder_attn_connection.branch_input(x), memory, memory_mask)
        return self.encoder_attn_connection(x, self.dropout(attended))
