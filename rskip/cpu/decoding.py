"""A decoder's step as one program, for the compiled search. B sentences, K beams, S source length, C features.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rskip.cpu.library import WORK_TO_SHARE
from rskip.cpu.program import Program
from rskip.cpu.structures import TYPES, Attention, Decoding, Embedding, Seen, addresses, kind_of


class CpuDecoding:
    """A decoder's arguments for the compiled search, from the state before the first token."""

    def __init__(self, arguments: Decoding, embedding: Embedding, positions: Any, words: int) -> None:
        self.arguments, self.words = arguments, words
        self._embedding, self._positions = embedding, positions

    def know(self, length: int) -> None:
        """Makes sure that the table of positions has this number of tokens, which is the same in all calls or grows."""
        self.arguments.known = length
        if self._positions is not None:
            self._positions.grow(length)
            self._embedding.point("positions", self._positions.rows)


class Step:
    """A step with up to a number of rows.

    :param program: an empty program.
    :param stack: the decoder: a module, or weights of a file.
    """

    def __init__(self, program: Program, stack: Any) -> None:
        self.program, self.positions, self.padding = program, stack.embed_positions, stack.config.padding_index
        self.words, features = stack.embed_tokens.weight.shape
        self.seen_target, self.seen_memory = Seen(), Seen()
        self.target: list[Attention] = []
        self.memory: list[Attention] = []
        layers = list(stack.layers)
        rooms = program.room(features, layers[0].fc1.out_features)
        self.embedding = program.embed(stack, rooms.x)
        program.enter(stack.stack_connection, rooms)
        for layer in layers:
            over_target = program.self_attention(layer, self.seen_target, rooms)
            over_target.point("new_key", rooms.key)
            over_target.point("new_value", rooms.value)
            self.target.append(over_target)
            cross, connection = layer.encoder_attn, layer.encoder_attn_connection
            program.query(cross, program.branch_input(connection, rooms), rooms)
            self.memory.append(program.attend(self.seen_memory, rooms.query, rooms.query, cross.heads))
            program.attention_output(cross, rooms)
            program.join(connection, rooms)
            program.feed_forward(layer, rooms)
        program.leave(stack.stack_connection, rooms)
        program.norm(stack.layer_norm, rooms.x)
        self.logits = program.last_map(stack.output_projection, rooms.x)
        self.places = np.empty(program.rows, np.int64)
        self.embedding.point("places", self.places)
        self.x = rooms.x

    def decoding(
        self, memory: Sequence[tuple[Any, Any]], source_slots: np.ndarray, source_counts: np.ndarray
    ) -> CpuDecoding | None:
        """What the compiled search needs to run all steps; None if modules compute parts of a step.

        :param memory: keys and values (B, S, C) of each layer.
        :param source_slots: (B, S) the positions that are not padding first; `source_counts` (B) their number.
        """
        whole, logits = self.program.whole(), self.logits
        if whole is None or logits is None or logits.outputs != self.words:
            return None
        operations, work = whole
        keys, values = (addresses([each[part] for each in memory]) for part in (0, 1))
        arguments = Decoding(
            program=operations, embedding=self.embedding, places=self.places, target=self.seen_target,
            memory=self.seen_memory, targets=addresses(self.target), memories=addresses(self.memory), keys=keys,
            values=values, source_slots=source_slots, source_counts=source_counts, layers=len(keys),
            features=self.x.shape[1], source=source_slots.shape[1], first_place=self.padding,
            rows_to_share=-(-WORK_TO_SHARE // max(work, 1)), type=TYPES[kind_of(self.x)],
        )  # fmt: skip
        arguments.step = self
        return CpuDecoding(arguments, self.embedding, self.positions, logits.outputs)
