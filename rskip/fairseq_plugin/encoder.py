"""Our encoder with fairseq's interface. B batch, S source length, C features."""

from __future__ import annotations

from typing import Any

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from rskip.transformer import Memory, TransformerConfig
from rskip.transformer.encoder import Encoder

EncoderOut = dict[str, list[Any]]


class _EncoderInterface(FairseqEncoder):
    def __init__(self) -> None:
        super().__init__(dictionary=None)


class ConnectionEncoder(Encoder, _EncoderInterface):
    """`rskip.transformer`'s encoder with the arguments and results that fairseq's trainer and generator expect."""

    def __init__(self, config: TransformerConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(config, embed_tokens)
        self.dictionary = dictionary

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None) -> EncoderOut:  # type: ignore[override]
        """Encodes source tokens (B, S) into fairseq's dictionary of lists, with states (S, B, C)."""
        return encoder_out_of(self.encode(src_tokens))

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """Selects the rows `new_order` of the batch, in that order."""
        return encoder_out_of(memory_of(encoder_out).reorder(new_order))

    def max_positions(self) -> int:
        """The maximum source length in tokens."""
        return self.config.max_source_positions


def encoder_out_of(memory: Memory) -> EncoderOut:
    """Fairseq's dictionary for a memory. It also contains the memory itself."""
    return {
        "encoder_out": [memory.states.transpose(0, 1)],
        "encoder_padding_mask": [memory.padding],
        "encoder_embedding": [],
        "encoder_states": [],
        "src_tokens": [],
        "src_lengths": [],
        "memory": [memory],
    }


def memory_of(encoder_out: EncoderOut) -> Memory:
    """Our memory from fairseq's dictionary."""
    return encoder_out["memory"][0]
