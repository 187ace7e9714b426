"""Encoding on a CPU with the compiled kernels. B sentences, S source length, C features."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.cpu.library import Library
from rskip.cpu.program import CpuStack, Program, unpadded
from rskip.cpu.structures import Seen
from rskip.cpu.tensors import checked_indices
from rskip.transformer.encoder import Encoder, Memory
from rskip.transformer.positions import token_positions

LONGEST_SOURCE = 256  # PyTorch's attention is faster for longer sources
_ROWS = 512  # rows at a time per thread, which fit in its cache


class CpuEncoder(CpuStack["_Encoding"]):
    """Computes `Encoder`'s memories up to rounding: sums are in float32 even in bfloat16."""

    def __init__(self, encoder: Encoder, library: Library) -> None:
        super().__init__(encoder, library)
        self.encoder = encoder

    def build(self, rows: int) -> _Encoding:
        """The encoding of this number of tokens."""
        return _Encoding(self.encoder, self.library, rows)

    @torch.no_grad()
    def encode(self, source: Tensor) -> Memory:
        """As `Encoder.encode`."""
        source = checked_indices(self.library, source, self.encoder.embed_tokens.num_embeddings, "tokens")
        sentences, length = source.shape
        padding = source.eq(self.encoder.config.padding_index)
        states = self.encoder.embed_tokens.weight.new_empty(sentences, length, self.encoder.embed_tokens.embedding_dim)
        at_once = max(1, _ROWS * torch.get_num_threads() // max(1, length))
        program = self.program(min(at_once, sentences) * length)
        for part in zip(*(each.split(at_once) for each in (source, padding, states)), strict=True):
            program.compute(*part)
        return Memory(states, padding)


class _Encoding:
    """The encoding of up to this number of tokens at once."""

    def __init__(self, encoder: Encoder, library: Library, rows: int) -> None:
        weight = encoder.embed_tokens.weight
        self.positions, self.padding_index = encoder.embed_positions, encoder.config.padding_index
        self.seen = Seen()
        self.program = program = Program(library, weight, rows)
        room = program.room(weight.size(1), encoder.config.encoder_ffn_embed_dim)
        self.x, self.attentions = room.x, []
        self.embedding = program.embed(encoder, room.x)
        program.enter(encoder.stack_connection, room)
        for layer in encoder.encoder_layers():
            attention = program.self_attention(layer, self.seen, room)
            attention.point("key", room.key)
            attention.point("value", room.value)
            self.attentions.append(attention)
            program.feed_forward(layer, room)
        program.leave(encoder.stack_connection, room)
        program.norm(encoder.layer_norm, room.x)

    def compute(self, source: Tensor, padding: Tensor, states: Tensor) -> None:
        """States (B, S, C) of source tokens (B, S)."""
        sentences, length = source.shape
        self.embedding.point("tokens", source)
        if self.positions is not None:
            self.positions.grow(length)
            self.embedding.point("places", token_positions(source, self.padding_index))
            self.embedding.point("positions", self.positions.rows)
        slots, counts = unpadded(padding)
        seen = self.seen
        seen.point("place", torch.arange(sentences, dtype=torch.int32))
        seen.point("slots", slots)
        seen.point("counts", counts)
        seen.slots_sentence, seen.beams = length, length
        for each in self.attentions:
            each.slots_per_place = length
        self.program.run(sentences, length)
        states.copy_(self.x[: sentences * length].view_as(states))
