"""An encoder that runs as programs. B sentences, S source length, C features.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rskip.cpu.library import Library
from rskip.cpu.program import Program, per_thread
from rskip.cpu.structures import Seen, room
from rskip.cpu.threads import threads

_ROWS = 512  # rows at a time per thread, which fit in its cache


class Sources(NamedTuple):
    """Source tokens, and the positions of each sentence that are not padding.

    :param tokens: (B, S) int64.
    :param places: (B, S) int64, each token's row in the table of positions.
    :param slots: (B, S) int32, the positions that are not padding first.
    :param counts: (B,) int32, their number.
    """

    tokens: np.ndarray
    places: np.ndarray
    slots: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, padding: int) -> Sources:
        """The sources of contiguous int64 tokens (B, S) with this padding index."""
        real = tokens != padding
        return cls(tokens, np.cumsum(real, axis=1) * real + padding, *unpadded(~real))

    def part(self, first: int, last: int) -> Sources:
        """The sentences from `first` to before `last`."""
        return Sources(*(each[first:last] for each in self))


def unpadded(padding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (B, S) that are not padding, moved to the front, and their number per sentence (B)."""
    slots = np.argsort(padding, axis=1, kind="stable").astype(np.int32)
    return slots, (padding.shape[1] - padding.sum(1)).astype(np.int32)


class StackEncoder:
    """Encodes source tokens. Threads may share one.

    :param stack: the encoder's parts (`rskip.cpu.weights`, `rskip.cpu.module_stack`).
    :param like: an array of the rows' type.
    """

    def __init__(self, library: Library, stack: Any, like: Any) -> None:
        self.stack, self._like = stack, like
        self._program = per_thread(lambda rows: Encoding(Program(library, like, rows), stack))

    def encode(self, tokens: np.ndarray) -> tuple[Any, Sources]:
        """The states (B, S, C) of contiguous int64 tokens (B, S), and where they are not padding."""
        sentences, length = tokens.shape
        sources = Sources.of(tokens, self.stack.config.padding_index)
        states = room(self._like, sentences, length, self.stack.embed_tokens.weight.shape[1])
        at_once = max(1, _ROWS * threads() // max(1, length))
        encoding = self._program(min(at_once, sentences) * length)
        for first in range(0, sentences, at_once):
            last = first + at_once
            encoding.compute(sources.part(first, last), states[first:last])
        return states, sources


class Encoding:
    """The encoding of up to a number of tokens at once.

    :param program: an empty program.
    """

    def __init__(self, program: Program, stack: Any) -> None:
        self.program, self.positions, self.seen = program, stack.embed_positions, Seen()
        layers = stack.layers
        rooms = program.room(stack.embed_tokens.weight.shape[1], layers[0].fc1.out_features)
        self.x, self.attentions = rooms.x, []
        self.embedding = program.embed(stack, rooms.x)
        program.enter(stack.stack_connection, rooms)
        for layer in layers:
            attention = program.self_attention(layer, self.seen, rooms)
            attention.point("key", rooms.key)
            attention.point("value", rooms.value)
            self.attentions.append(attention)
            program.feed_forward(layer, rooms)
        program.leave(stack.stack_connection, rooms)
        program.norm(stack.layer_norm, rooms.x)

    def compute(self, source: Sources, states: Any) -> None:
        """Writes the states (B, S, C) of the sources."""
        sentences, length = source.tokens.shape
        self.embedding.point("tokens", source.tokens)
        if self.positions is not None:
            self.positions.grow(length)
            self.embedding.point("places", source.places)
            self.embedding.point("positions", self.positions.rows)
        seen = self.seen
        seen.point("place", np.arange(sentences, dtype=np.int32))
        seen.point("slots", source.slots)
        seen.point("counts", source.counts)
        seen.slots_sentence, seen.beams = length, length
        for each in self.attentions:
            each.slots_per_place = length
        self.program.run(sentences, length)
        states[...] = self.x[: sentences * length].reshape(states.shape)
