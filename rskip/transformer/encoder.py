"""The encoder. B batch, S source length, C features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
    """The encoder's output for the decoder: states (B, S, C) and padding (B, S), true at padding.

    :param padded: whether there is any padding. None: unknown; then it is checked on a CPU, and assumed on other
        devices, where the check would wait for the device.
    """

    states: Tensor
    padding: Tensor
    padded: bool | None = None

    @cached_property
    def mask(self) -> Tensor | None:
        """Additive mask (B, 1, 1, S), or None without padding."""
        if self.padded is None and self.padding.device.type == "cpu":
            self.padded = bool(self.padding.any())
        return None if self.padded is False else additive_mask(self.padding[:, None, None], self.states)

    def reorder(self, index: Tensor) -> Memory:
        """The rows at `index`, in that order."""
        padded = None if self.padded else self.padded  # rows with padding may not be selected
        return Memory(self.states.index_select(0, index), self.padding.index_select(0, index), padded)


class EncoderStack(nn.Module):
    """Encoder layers over any vectors. A derived class must have `config`.

    Encoders derive from it, because its members belong to the encoder itself in fairseq (`encoder.layers`).
    """

    config: StackConfig

    def build_layers(self, config: StackConfig) -> None:
        """Builds the layers and the closing normalisation."""
        numbers = range(1, config.encoder_layers + 1)
        self.layers = nn.ModuleList(EncoderLayer(config, number) for number in numbers)
        self.stack_connection = build_stack_connection(config.encoder_connection, config.encoder_embed_dim)
        self.layer_norm = build_closing_norm(config.encoder_connection, config.encoder_embed_dim)

    def run_layers(self, x: Tensor, padding: Tensor, *, padded: bool | None = None) -> Memory:
        """Runs the layers on x (B, S, C), with `padding` (B, S) true at padding, and returns the memory.

        :param padded: see `Memory`.
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
        """Encodes source tokens (B, S), padded on either side, and returns the memory. `padded`: see `Memory`."""
        positions = token_positions(source, self.config.padding_index)
        x = self.embed(source, positions, length=source.size(1))
        return self.run_layers(x, source.eq(self.config.padding_index), padded=padded)

    def forward(self, source: Tensor) -> Memory:
        return self.encode(source)
