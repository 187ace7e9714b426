"""The encoder. B batch, S source length, C features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

from torch import Tensor, nn

from rskip.connections import State, build_stack_connection
from rskip.transformer.attention import additive_mask
from rskip.transformer.config import StackConfig, TransformerConfig
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.layers import EncoderLayer
from rskip.transformer.positions import token_positions
from rskip.transformer.stack import build_closing_norm, layers_to_run, run_layer
from rskip.transformer.value_residual import FirstValues


@dataclass
class Memory:
    """What the decoder attends to: states (B, S, C) and padding (B, S), true at padding.

    padded: whether there is any padding. None: not known; then it is looked for on a CPU, and taken to be there on
    other devices, where a look would wait for the device.
    """

    states: Tensor
    padding: Tensor
    padded: bool | None = None

    @cached_property
    def mask(self) -> Tensor | None:
        """(B, 1, 1, S), added to scores; None without padding."""
        if self.padded is None and self.padding.device.type == "cpu":
            self.padded = bool(self.padding.any())
        return None if self.padded is False else additive_mask(self.padding[:, None, None], self.states)

    def reorder(self, index: Tensor) -> Memory:
        """The rows that `index` names, in its order."""
        padded = None if self.padded else self.padded  # the rows with padding may be left out
        return Memory(self.states.index_select(0, index), self.padding.index_select(0, index), padded)


class EncoderStack(nn.Module):
    """Encoder layers over vectors, whatever they stand for; `config` is what derives from it to have.

    Its members belong to the encoder itself, as in fairseq (`encoder.layers`), so encoders derive from it.
    """

    config: StackConfig

    def build_layers(self, config: StackConfig) -> None:
        """Makes the layers and what closes their stack."""
        numbers = range(1, config.encoder_layers + 1)
        self.layers = nn.ModuleList(EncoderLayer(config, number) for number in numbers)
        self.stack_connection = build_stack_connection(config.encoder_connection, config.encoder_embed_dim)
        self.layer_norm = build_closing_norm(config.encoder_connection, config.encoder_embed_dim)

    def encoder_layers(self) -> list[EncoderLayer]:
        """The layers, by their type."""
        return cast("list[EncoderLayer]", list(self.layers))

    def run_layers(self, x: Tensor, padding: Tensor, *, padded: bool | None = None) -> Memory:
        """The first layer's input x (B, S, C), its padding (B, S) true where nothing stands, to a memory.

        padded: see `Memory`.
        """
        config, memory = self.config, Memory(x, padding, padded)
        passed: State = self.stack_connection.enter(x)
        first = FirstValues()
        for layer in layers_to_run(self.layers, config.encoder_layerdrop, training=self.training):
            passed = run_layer(layer, passed, memory.mask, first, checkpointed=config.checkpoint_activations)
        x = self.stack_connection.leave(passed)
        memory.states = x if self.layer_norm is None else self.layer_norm(x)
        return memory


class Encoder(EmbeddingModule, EncoderStack):
    """Embeddings of tokens and a stack of encoder layers."""

    config: TransformerConfig

    def __init__(self, config: TransformerConfig, embed_tokens: nn.Embedding) -> None:
        super().__init__(
            config,
            embed_tokens,
            max_length=config.max_source_positions,
            learned_positions=config.encoder_learned_pos,
        )
        self.build_layers(config)

    def encode(self, source: Tensor, *, padded: bool | None = None) -> Memory:
        """Source tokens (B, S), padded on either side, to a memory. padded: see `Memory`."""
        positions = token_positions(source, self.config.padding_index)
        x = self.embed(source, positions, length=source.size(1))
        return self.run_layers(x, source.eq(self.config.padding_index), padded=padded)

    def forward(self, source: Tensor) -> Memory:
        return self.encode(source)
