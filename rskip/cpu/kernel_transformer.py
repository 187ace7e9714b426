"""A Transformer that the kernels compute completely, from the weights of a file. It needs NumPy, but no PyTorch.

B sentences, K beams, S source length, C features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rskip.cpu.decoding import CpuDecoding, Step
from rskip.cpu.encoding import Encoding, Projection, Sources, sentences_at_once
from rskip.cpu.library import Library, find_library, library_for_int8
from rskip.cpu.program import Program, Programs
from rskip.cpu.structures import room
from rskip.cpu.weights import Parameters, read_stacks
from rskip.extras import advice
from rskip.kernel_forms import NoKernelForm
from rskip.settings.errors import SettingError
from rskip.transformer.config import TransformerProperties


class KernelMemory(NamedTuple):
    """The decoder's keys and values (B, S, C) of each layer, and the positions of the sources; see `Sources`."""

    keys_values: list[tuple[Any, Any]]
    slots: np.ndarray
    counts: np.ndarray


class KernelTransformer(TransformerProperties):
    """Encodes sources and prepares the compiled search. Threads may share one.

    :param settings: see `rskip.cpu.weights.read_stacks`.
    :param parameters: see `rskip.cpu.weights.Parameters`.
    :param precision: "float32", "bfloat16" or "int8".
    :raises NoKernelForm: the kernels are missing or can't compute the model, so only PyTorch can.
    :raises ValueError: int8 without 8-bit products, or as `read_stacks`.
    """

    def __init__(self, settings: Mapping[str, Any], parameters: Parameters, precision: str) -> None:
        self.library = library_for_int8() if precision == "int8" else _library()
        self.precision = precision
        stacks = read_stacks(self.library, settings, parameters, precision)
        self.config, encoder, decoder = stacks.config, stacks.encoder, stacks.decoder
        self._vocabulary, self._features = encoder.embed_tokens.weight.shape
        self._like = np.empty(0, encoder.embed_tokens.weight.dtype)
        library, like = self.library, self._like
        self._encodings = Programs(lambda rows: Encoding(Program(library, like, rows), encoder))
        self._projections = Programs(lambda rows: Projection(Program(library, like, rows), decoder, like, rows))
        self._steps = Programs(lambda rows: Step(Program(library, like, rows), decoder))
        for each in (self._encodings, self._projections, self._steps):
            each.program(1)  # what the kernels can't compute shows here

    @property
    def max_positions(self) -> int | None:
        """The maximum target length in tokens, including the end symbol; None without a limit."""
        return self.config.max_target_positions if self.config.decoder_learned_pos else None

    def encode(self, sources: Sequence[Sequence[int]]) -> KernelMemory:
        """Encodes source tokens of any lengths, which include the end.

        :raises IndexError: a token is not in the vocabulary.
        :raises ValueError: a source is empty.
        """
        if not all(sources):
            raise ValueError("a source is empty: expected at least its end")
        length, padding = max(map(len, sources)), self.config.padding_index
        tokens = np.full((len(sources), length), padding, np.int64)
        for row, source in zip(tokens, sources, strict=True):
            row[: len(source)] = source
        if tokens.min() < 0 or tokens.max() >= self._vocabulary:
            raise IndexError(f"tokens include {tokens.min()} or {tokens.max()}: expected 0 to {self._vocabulary - 1}")
        given, at_once = Sources.of(tokens, padding), sentences_at_once(length)
        states = room(self._like, len(sources), length, self._features)
        encoding = self._encodings.program(min(at_once, len(sources)) * length)
        for first in range(0, len(sources), at_once):
            encoding.compute(given.part(first, first + at_once), states[first : first + at_once])
        keys_values = self._projections.program(tokens.size).compute(states)
        return KernelMemory(keys_values, given.slots, given.counts)

    def decoding(self, memory: KernelMemory, beams: int) -> CpuDecoding:
        """What the compiled search needs to run all steps."""
        decoding = self._steps.program(len(memory.counts) * beams).decoding(*memory)
        assert decoding is not None
        return decoding


def _library() -> Library:
    found = find_library()
    if found.library is not None:
        return found.library
    reason = f"needs the compiled kernels or torch: {found.problem}"
    raise NoKernelForm(reason, without_torch=SettingError("", reason, advice=f"or {advice('torch')}"))
