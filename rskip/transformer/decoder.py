"""The decoder, and the base that it shares with a language model's.

B batch, T target length, S source length, C features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, cast

import torch
from torch import Tensor, nn

from rskip.connections import State, build_stack_connection
from rskip.transformer.attention import additive_mask
from rskip.transformer.config import DecoderConfig, StackConfig
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.encoder import Memory
from rskip.transformer.layers import DecoderLayer
from rskip.transformer.positions import token_positions
from rskip.transformer.stack import build_closing_norm, layers_to_run, run_layer
from rskip.transformer.state import IncrementalState, LayerCache
from rskip.transformer.value_residual import FirstValues


class DecoderStack(EmbeddingModule):
    """Base of decoders: embeddings, a stack of layers and the projection to the vocabulary.

    Decoders derive from it, because its members belong to the decoder itself in fairseq (`decoder.layers`).

    :param left_padded: whether prefixes may begin with padding. None: unknown; then it is checked on a CPU, and assumed
        on other devices, where the check would wait for the device. Left padding needs a mask, which rules out fused
        attention.
    """

    left_padded: bool | None = None

    def __init__(self, config: DecoderConfig, embed_tokens: nn.Embedding, layers: Iterable[nn.Module]) -> None:
        features = config.decoder_embed_dim
        super().__init__(
            config,
            embed_tokens,
            max_length=config.max_target_positions,
            learned_positions=config.decoder_learned_pos,
        )
        self.layers = nn.ModuleList(layers)
        self.stack_connection = build_stack_connection(config.decoder_connection, features)
        self.layer_norm = build_closing_norm(config.decoder_connection, features)
        self.output_projection = nn.Linear(features, embed_tokens.num_embeddings, bias=config.output_has_bias)
        if config.output_is_embedding:
            self.output_projection.weight = embed_tokens.weight
        else:
            nn.init.normal_(self.output_projection.weight, std=features**-0.5)
        if config.output_has_bias:
            nn.init.zeros_(self.output_projection.bias)

    def run_layers(
        self, x: Tensor, inputs: tuple[Any, ...], caches: Iterable[LayerCache | None] | None = None
    ) -> Tensor:
        """The stack's output (B, T, C) from its input x (B, T, C).

        :param inputs: what every layer takes in addition to its state.
        :param caches: one per layer, while decoding token by token; LayerDrop is off then.
        """
        config, first = self.config, FirstValues()
        passed: State = self.stack_connection.enter(x)
        layers = layers_to_run(self.layers, config.decoder_layerdrop, training=self.training and caches is None)
        for layer, cache in zip(layers, repeat(None) if caches is None else caches, strict=False):
            passed = run_layer(layer, passed, *inputs, first, cache, checkpointed=config.checkpoint_activations)
        x = self.stack_connection.leave(passed)
        return x if self.layer_norm is None else self.layer_norm(x)

    def left_padding_mask(self, prefix: Tensor, x: Tensor) -> Tensor | None:
        """Additive mask (B, 1, T, T), or None without left padding, because causal order hides padding on the right."""
        if self.left_padded is False or self.padding_index is None:
            return None
        padding = prefix.eq(self.padding_index)
        if self.left_padded is None and prefix.device.type == "cpu" and not padding[:, :1].any():
            return None
        length = prefix.size(1)
        causal = torch.ones(length, length, dtype=torch.bool, device=prefix.device).tril()
        own = torch.eye(length, dtype=torch.bool, device=prefix.device)
        return additive_mask(~((causal & ~padding[:, None, None]) | own), x)


class Decoder(DecoderStack):
    """The decoder of an encoder-decoder: its layers attend to the encoder's memory too."""

    config: StackConfig

    def __init__(self, config: StackConfig, embed_tokens: nn.Embedding) -> None:
        numbers = range(1, config.decoder_layers + 1)
        super().__init__(config, embed_tokens, (DecoderLayer(config, number) for number in numbers))

    def features(self, prefix: Tensor, memory: Memory | None, state: IncrementalState | None = None) -> Tensor:
        """The last layer's output at every position of `prefix` (B, T). Shape: (B, T, C).

        With a state, which also contains the memory, `prefix` (B, K) is the last token of each beam. It is added to the
        state, and LayerDrop is off.
        """
        if state is None:
            assert memory is not None
            x = self.embed(prefix, token_positions(prefix, self.padding_index), length=prefix.size(1))
            return self.run_layers(x, (memory.states, memory.mask, self.left_padding_mask(prefix, x)))
        state.advance()
        x = self.embed(prefix, state.position, length=state.length)
        return self.run_layers(x, (None, state.memory_mask, state.mask), state.layers)

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Logits of the token after each position of `prefix` (B, T). Shape: (B, T, V)."""
        return self.output_projection(self.features(prefix, memory))

    def forward(self, prefix: Tensor, memory: Memory) -> Tensor:
        return self.decode(prefix, memory)

    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers, typed as decoder layers."""
        return cast("list[DecoderLayer]", list(self.layers))

    @torch.no_grad()
    def start(self, memory: Memory, *, attention: bool = False) -> IncrementalState:
        """The state before the first token, with one beam for each sentence of `memory`.

        The memory's keys and values are computed here, once. With `attention`, the state also stores each step's
        attention over the memory.
        """
        projected = [layer.encoder_attn.project(memory.states) for layer in self.decoder_layers()]
        layers = [LayerCache(each) for each in projected]
        layers[-1].wants_attention = attention
        states = memory.states
        nothing = projected[0].key.new_zeros(states.size(0), 1, 1, 0)
        before = torch.full((1, 1), self.config.padding_index, device=states.device)
        return IncrementalState(layers, nothing, before, memory.mask)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: IncrementalState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. `tokens` are appended to the state."""
        return self.output_projection(self.features(tokens, None, state))
