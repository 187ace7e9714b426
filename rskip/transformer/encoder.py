"""The encoder. B batch, S source length, C features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from rskip.transformer.config import TransformerConfig
from rskip.transformer.embedding import EmbeddingModule
from rskip.transformer.layers import EncoderLayer
from rskip.transformer.positions import token_positions
from rskip.transformer.stack import build_closing_norm, layers_to_run, run_layer


@dataclass
class Memory:
    """What the decoder attends to: states (B, S, C) and padding (B, S), true at padding."""

    states: Tensor
    padding: Tensor

    @property
    def mask(self) -> Tensor:
        """(B, 1, 1, S), true where a state may be seen."""
        return ~self.padding[:, None, None]

    def reorder(self, index: Tensor) -> Memory:
        """The rows that `index` names, in its order."""
        return Memory(self.states.index_select(0, index), self.padding.index_select(0, index))


class Encoder(EmbeddingModule):
    """Embeddings and a stack of encoder layers."""

    def __init__(self, config: TransformerConfig, embed_tokens: nn.Embedding) -> None:
        features = config.encoder_embed_dim
        super().__init__(
            config,
            embed_tokens,
            max_length=config.max_source_positions,
            learned_positions=config.encoder_learned_pos,
        )
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.layer_norm = build_closing_norm(config.encoder_connection, features)

    def encode(self, source: Tensor) -> Memory:
        """Source tokens (B, S), padded on either side, to a memory."""
        config = self.config
        padding = source.eq(config.padding_index)
        x = self.embed(source, token_positions(source, config.padding_index), length=source.size(1))
        mask = Memory(x, padding).mask
        for layer in layers_to_run(self.layers, config.encoder_layerdrop, training=self.training):
            x = run_layer(layer, x, mask, checkpointed=config.checkpoint_activations)
        return Memory(x if self.layer_norm is None else self.layer_norm(x), padding)

    def forward(self, source: Tensor) -> Memory:
        return self.encode(source)
