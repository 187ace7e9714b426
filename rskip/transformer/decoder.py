"""The decoder. B batch, T target length, S source length, C features, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from rskip.transformer.config import TransformerConfig
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.encoder import Memory
from rskip.transformer.layers import DecoderLayer, LayerCache
from rskip.transformer.positions import token_positions
from rskip.transformer.stack import build_closing_norm, layers_to_run, run_layer


@dataclass
class DecoderCache:
    """What incremental decoding keeps: `length` positions so far, each layer's keys and values, the memory's mask."""

    layers: list[LayerCache]
    memory_mask: Tensor
    length: int = 0

    def reorder(self, index: Tensor) -> None:
        """Keeps the rows of the batch that `index` names, in its order."""
        for layer in self.layers:
            layer.reorder(index)
        self.memory_mask = self.memory_mask.index_select(0, index)


class Decoder(EmbeddingModule):
    """Embeddings, a stack of decoder layers and the projection to the vocabulary."""

    def __init__(self, config: TransformerConfig, embed_tokens: nn.Embedding) -> None:
        features = config.decoder_embed_dim
        super().__init__(
            config,
            embed_tokens,
            max_length=config.max_target_positions,
            learned_positions=config.decoder_learned_pos,
        )
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.layer_norm = build_closing_norm(config.decoder_connection, features)
        self.output_projection = nn.Linear(features, config.target_vocabulary, bias=False)
        if config.share_decoder_input_output_embed or config.share_all_embeddings:
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=features**-0.5)

    def features(self, prefix: Tensor, memory: Memory) -> Tensor:
        """The last layer's output at every position of `prefix` (B, T). Shape: (B, T, C)."""
        config = self.config
        x = self.embed(prefix, token_positions(prefix, config.padding_index), length=prefix.size(1))
        mask = self._left_padding_mask(prefix)
        memory_mask = memory.mask
        for layer in layers_to_run(self.layers, config.decoder_layerdrop, training=self.training):
            x = run_layer(
                layer, x, memory.states, memory_mask, mask, checkpointed=config.checkpoint_activations
            )
        return x if self.layer_norm is None else self.layer_norm(x)

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Logits of the token after each position of `prefix` (B, T). Shape: (B, T, V)."""
        return self.output_projection(self.features(prefix, memory))

    def forward(self, prefix: Tensor, memory: Memory) -> Tensor:
        return self.decode(prefix, memory)

    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers, by their type."""
        return cast("list[DecoderLayer]", list(self.layers))

    def start(self, memory: Memory) -> DecoderCache:
        """An empty cache over `memory`, whose keys and values are computed here, once."""
        layers = [LayerCache(None, layer.encoder_attn.project(memory.states)) for layer in self.decoder_layers()]
        return DecoderCache(layers, memory.mask)

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """Logits (B, V) of the token after `tokens` (B,), which follow those in the cache; the cache takes them in."""
        config = self.config
        cache.length += 1
        positions = torch.full_like(tokens, config.padding_index + cache.length)[:, None]
        x = self.embed(tokens[:, None], positions, length=cache.length)  # (B, 1, C)
        for layer, layer_cache in zip(self.decoder_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.memory_mask)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return self.output_projection(x[:, 0])

    def _left_padding_mask(self, prefix: Tensor) -> Tensor | None:
        """(B, 1, T, T), true where a key may be seen, or None: without padding on the left, causal order hides it."""
        padding = prefix.eq(self.config.padding_index)
        if not padding[:, 0].any():
            return None
        length = prefix.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=prefix.device).tril()
        own = torch.eye(length, dtype=torch.bool, device=prefix.device)
        return (causal & ~padding[:, None, None]) | own
