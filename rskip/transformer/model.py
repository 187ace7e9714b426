"""The encoder-decoder Transformer, and the bases that it shares with other models."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rskip.transformer.config import DecoderConfig, StackConfig, TransformerConfig, TransformerProperties
from rskip.transformer.decoder import Decoder, DecoderStack
from rskip.transformer.embedding import build_token_embedding
from rskip.transformer.encoder import Encoder, Memory
from rskip.transformer.state import IncrementalState


class DecodingModel(nn.Module):
    """Base of models that decode token by token, with or without an encoder."""

    config: DecoderConfig
    decoder: DecoderStack

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return self.decoder.embed_tokens.weight.device

    @property
    def precision(self) -> str:
        """The number format of its computations: "float32", "bfloat16", ..."""
        return str(self.decoder.embed_tokens.weight.dtype).removeprefix("torch.")

    def move(self, device: torch.device) -> None:
        """Moves the model to the device."""
        self.to(device)

    @property
    def max_positions(self) -> int | None:
        """The maximum target length in tokens, including the end symbol; None without a limit."""
        return self.config.max_target_positions if self.config.decoder_learned_pos else None

    def reorder(self, state: IncrementalState, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Beam k continues `parents[:, k]`. See `IncrementalState.reorder`."""
        state.reorder(parents, sentences)


class EncoderDecoder(DecodingModel):
    """Base of models with this decoder and any encoder. B batch, T target length, V target vocabulary.

    Tokens are indices into a dictionary. Padding is `config.padding_index`, on either side.
    """

    config: StackConfig
    decoder: Decoder

    def decode(self, prefix: Tensor, memory: Memory) -> Tensor:
        """Logits (B, T, V) of the token after each position of `prefix` (B, T)."""
        return self.decoder.decode(prefix, memory)

    def start(self, memory: Memory, *, attention: bool = False) -> IncrementalState:
        """The state before the first token, with one beam for each sentence of `memory`. See `Decoder.start`."""
        return self.decoder.start(memory, attention=attention)

    def step(self, tokens: Tensor, state: IncrementalState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K) in each beam. `tokens` are appended to the state."""
        return self.decoder.step(tokens, state)


class Transformer(TransformerProperties, EncoderDecoder):
    """An encoder-decoder Transformer (Vaswani et al. 2017) with a chosen connection in every block.

    S is the source length. Parameter names are fairseq's for the parts that fairseq has too, so `rskip.checkpoint` can
    load fairseq's own checkpoints.
    """

    config: TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        source = build_token_embedding(config.source_vocabulary, config.encoder_embed_dim, config.padding_index)
        target = (
            source
            if config.share_all_embeddings
            else build_token_embedding(config.target_vocabulary, config.decoder_embed_dim, config.padding_index)
        )
        self.encoder = Encoder(config, source)
        self.decoder = Decoder(config, target)

    def encode(self, source: Tensor, *, padded: bool | None = None) -> Memory:
        """Encodes source tokens (B, S) into the memory for the decoder. `padded`: see `Memory`."""
        return self.encoder.encode(source, padded=padded)

    def forward(self, source: Tensor, prefix: Tensor) -> Tensor:
        """Logits (B, T, V) for source (B, S) and target prefix (B, T)."""
        return self.decode(prefix, self.encode(source))
