"""Our encoder behind fairseq's interface. B batch, S source length, C features."""

from __future__ import annotations

from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from rskip.transformer import Memory, TransformerConfig
from rskip.transformer.encoder import Encoder

EncoderOut = dict[str, list[Tensor]]


class _EncoderInterface(FairseqEncoder):
    def __init__(self) -> None:
        super().__init__(dictionary=None)


class ConnectionEncoder(Encoder, _EncoderInterface):
    """`rskip.transformer`'s encoder, called and answering as fairseq's trainer and generator expect."""

    def __init__(self, config: TransformerConfig, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(config, embed_tokens)
        self.dictionary = dictionary

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None) -> EncoderOut:  # type: ignore[override]
        """Source tokens (B, S) to fairseq's dictionary of lists, with states as (S, B, C)."""
        memory = self.encode(src_tokens)
        return {
            "encoder_out": [memory.states.transpose(0, 1)],
            "encoder_padding_mask": [memory.padding],
            "encoder_embedding": [],
            "encoder_states": [],
            "src_tokens": [],
            "src_lengths": [],
        }

    def reorder_encoder_out(self, encoder_out: EncoderOut, new_order: Tensor) -> EncoderOut:
        """The rows of the batch that `new_order` names, in its order."""
        memory = memory_of(encoder_out).reorder(new_order)
        return {
            **encoder_out,
            "encoder_out": [memory.states.transpose(0, 1)],
            "encoder_padding_mask": [memory.padding],
        }

    def max_positions(self) -> int:
        """The longest source sentence, in tokens."""
        return self.config.max_source_positions


def memory_of(encoder_out: EncoderOut) -> Memory:
    """Our memory from fairseq's dictionary."""
    return Memory(encoder_out["encoder_out"][0].transpose(0, 1), encoder_out["encoder_padding_mask"][0])
