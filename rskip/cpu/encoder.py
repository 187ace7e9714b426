"""Encoding on a CPU with the compiled kernels. B sentences, S source length, C features."""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.cpu.encoding import Encoding, Sources, sentences_at_once
from rskip.cpu.library import Library
from rskip.cpu.module_program import CpuStack, ModuleProgram
from rskip.cpu.tensors import checked_indices
from rskip.transformer.encoder import Encoder, Memory

LONGEST_SOURCE = 256  # PyTorch's attention is faster for longer sources


class CpuEncoder(CpuStack[Encoding]):
    """Computes `Encoder`'s memories up to rounding: sums are in float32 even in bfloat16."""

    def __init__(self, encoder: Encoder, library: Library) -> None:
        like = encoder.embed_tokens.weight
        super().__init__(encoder, library, lambda rows: Encoding(ModuleProgram(library, like, rows), encoder))
        self.encoder = encoder

    @torch.no_grad()
    def encode(self, source: Tensor) -> Memory:
        """As `Encoder.encode`."""
        embedding, padding = self.encoder.embed_tokens, self.encoder.config.padding_index
        source = checked_indices(self.library, source, embedding.num_embeddings, "tokens")
        sentences, length = source.shape
        sources, at_once = Sources.of(source.numpy(), padding), sentences_at_once(length)
        states = embedding.weight.new_empty(sentences, length, embedding.embedding_dim)
        program = self.program(min(at_once, sentences) * length)
        for first in range(0, sentences, at_once):
            last = first + at_once
            program.compute(sources.part(first, last), states[first:last])
        return Memory(states, source.eq(padding))
