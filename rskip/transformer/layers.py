"""The layers of both stacks: branches joined by the connections that they are given.

B batch, T target length, S source length, H heads, C features. Member names are checkpoint API: fairseq's where the
part is the same, and `<branch>_connection` for the connection that joins a branch.
"""

from __future__ import annotations

from torch import Tensor, nn

from rskip.connections import build_connection
from rskip.transformer.attention import KeyValue, MultiHeadAttention
from rskip.transformer.config import ACTIVATIONS, StackConfig
from rskip.transformer.dropout import Dropout
from rskip.transformer.state import DecoderState


class TransformerLayer(nn.Module):
    """What an encoder layer and a decoder layer share: self-attention and a feed-forward branch."""

    def __init__(
        self, config: StackConfig, *, features: int, inner_features: int, heads: int, connection: str
    ) -> None:
        super().__init__()
        self.self_attn = MultiHeadAttention(features, heads, dropout=config.attention_dropout)
        self.self_attn_connection = build_connection(connection, features)
        self.fc1 = nn.Linear(features, inner_features)
        self.fc2 = nn.Linear(inner_features, features)
        self.ffn_connection = build_connection(connection, features)
        self.activation = ACTIVATIONS[config.activation_fn]
        self.dropout = Dropout(config.dropout)
        self.activation_dropout = Dropout(config.activation_dropout)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward branch and its connection. Shape: (B, T, C) -> (B, T, C)."""
        inner = self.activation(self.fc1(self.ffn_connection.branch_input(x)))
        return self.ffn_connection(x, self.dropout(self.fc2(self.activation_dropout(inner))))


class EncoderLayer(TransformerLayer):
    """Self-attention, then feed-forward."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__(
            config,
            features=config.encoder_embed_dim,
            inner_features=config.encoder_ffn_embed_dim,
            heads=config.encoder_attention_heads,
            connection=config.encoder_connection,
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (B, S, C); mask (B, 1, 1, S), added to scores, or None."""
        attended = self.self_attn_connection.branch_input(x)
        attended = self.self_attn(attended, self.self_attn.project(attended), mask)
        return self.feed_forward(self.self_attn_connection(x, self.dropout(attended)))


class DecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's memory, then feed-forward."""

    def __init__(self, config: StackConfig) -> None:
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

    def step(self, x: Tensor, layer: int, slots: slice | Tensor, state: DecoderState) -> Tensor:
        """The next position (B, K, C) of each beam, after those in `state`, whose `slots` take it in."""
        attended = self.self_attn_connection.branch_input(x)
        target = state.write(layer, slots, self.self_attn.project(attended))
        x = self.self_attn_connection(x, self.self_attn(attended, target, state.target_mask))
        memory = state.memory[layer]
        if state.wants_attention and layer == len(state.memory) - 1:
            query = self.encoder_attn_connection.branch_input(x)
            state.attention = self.encoder_attn.weights(query, memory, state.memory_mask)
        return self.feed_forward(self._attend_to_memory(x, memory, state.memory_mask))

    def _attend_to_memory(self, x: Tensor, memory: KeyValue, memory_mask: Tensor | None) -> Tensor:
        attended = self.encoder_attn(self.encoder_attn_connection.branch_input(x), memory, memory_mask)
        return self.encoder_attn_connection(x, self.dropout(attended))
