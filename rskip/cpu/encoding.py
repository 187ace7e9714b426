"""Encoding of tokens by programs of kernels. B sentences, S source length, C features.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rskip.cpu.program import Program
from rskip.cpu.structures import Seen, address, room
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
        slots, counts = unpadded(~real)
        return cls(tokens, np.cumsum(real, axis=1) * real + padding, slots, counts)

    def part(self, first: int, last: int) -> Sources:
        """The sentences from `first` to before `last`."""
        return Sources(*(each[first:last] for each in self))


def unpadded(padding: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions (B, S) that are not padding, moved to the front, and their number per sentence (B)."""
    slots = np.argsort(padding, axis=1, kind="stable").astype(np.int32)
    return slots, (padding.shape[1] - padding.sum(1)).astype(np.int32)


def sentences_at_once(length: int) -> int:
    """The number of sentences of this length that are encoded at the same time."""
    return max(1, _ROWS * threads() // max(1, length))


class Encoding:
    """The encoding of up to a number of tokens at once.

    :param program: an empty program.
    :param stack: the encoder: a module, or weights of a file.
    """

    def __init__(self, program: Program, stack: Any) -> None:
        self.program, self.positions, self.seen = program, stack.embed_positions, Seen()
        layers = list(stack.layers)
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


class Projection:
    """Each decoder layer's keys and values of the memory, for up to a number of positions at once.

    :param stack: the decoder.
    :param like: an array of the rows' type.
    """

    def __init__(self, program: Program, stack: Any, like: Any, rows: int) -> None:
        layers = [layer.encoder_attn for layer in stack.layers]
        self.program, self.x = program, room(like, rows, layers[0].k_proj.in_features)
        self.features = layers[0].k_proj.out_features
        self.maps = [program.last_map(each, self.x) for layer in layers for each in (layer.k_proj, layer.v_proj)]
        is_plain = all(layer.key_norm is None and layer.value_norm is None for layer in layers)
        self.suits = is_plain and all(each is not None and each.outputs == self.features for each in self.maps)

    def compute(self, states: Any) -> list[tuple[Any, Any]]:
        """Keys and values (B, S, C) of each layer, from the memory's states (B, S, C)."""
        sentences, length, _ = states.shape
        self.x[: sentences * length].reshape(states.shape)[...] = states
        found = [room(self.x, sentences, length, self.features) for _ in self.maps]
        for each, output in zip(self.maps, found, strict=True):
            assert each is not None
            each.output = address(output)  # only the address: an idle program must not keep the last memory
        self.program.run(sentences, length)
        return list(zip(found[::2], found[1::2], strict=True))
