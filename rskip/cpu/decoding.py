"""A decoder whose steps run as programs. B sentences, K beams, S source length, C features, V target vocabulary.

It needs NumPy, but no PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rskip.cpu.library import WORK_TO_SHARE, Library
from rskip.cpu.program import Program, per_thread
from rskip.cpu.structures import TYPES, Attention, Decoding, Seen, address, addresses, kind_of, room

KeysValues = tuple[Any, Any]  # of a layer, (places, slots, C) each


class CpuDecoding(Decoding):
    """A decoder's arguments for the compiled search, from the state before the first token."""

    step: _Step

    def know(self, length: int) -> None:
        """Makes sure that the table of positions has this number of tokens, which is the same in all calls or grows."""
        self.known = length
        if self.step.positions is not None:
            self.step.positions.grow(length)
            self.step.embedding.point("positions", self.step.positions.rows)


class StackDecoder:
    """Projects the memory and computes steps. Threads may share one.

    :param stack: the decoder's parts (`rskip.cpu.weights`, `rskip.cpu.module_stack`).
    :param like: an array of the rows' type.
    """

    def __init__(self, library: Library, stack: Any, like: Any) -> None:
        self.library, self._stack = library, stack
        self.words = stack.embed_tokens.weight.shape[0]
        self._projection = per_thread(lambda rows: _Projection(Program(library, like, rows), stack))
        self._step = per_thread(lambda rows: _Step(Program(library, like, rows), stack))

    def project(self, states: Any) -> list[KeysValues]:
        """Keys and values (B, S, C) of each layer, from the memory's states (B, S, C)."""
        if self._stack.project is not None:
            return self._stack.project(states)
        return self._projection(states.shape[0] * states.shape[1]).compute(states)

    def step(self, tokens: Any, state: Any) -> Any:
        """Logits (B, K, V) for the token after `tokens` (B, K). `state`: see `rskip.cpu.state.CpuState`."""
        return self._step(tokens.shape[0] * tokens.shape[1]).compute(tokens, state)

    def decoding(
        self, memory: Sequence[KeysValues], slots: np.ndarray, counts: np.ndarray, beams: int
    ) -> CpuDecoding | None:
        """What the compiled search needs to run all steps; None if calls of PyTorch compute parts of a step.

        :param memory: keys and values (B, S, C) of each layer.
        :param slots: (B, S) the positions that are not padding first; `counts` (B) their number.
        """
        return self._step(len(counts) * beams).decoding(memory, slots, counts)


class _Projection:
    """The projection of up to a number of positions at once. `program`: an empty program."""

    def __init__(self, program: Program, stack: Any) -> None:
        layers = [layer.encoder_attn for layer in stack.layers]
        self.program, self.x = program, program.buffer("memory", layers[0].k_proj.in_features)
        self.maps = [program.last_map(each, self.x) for layer in layers for each in (layer.k_proj, layer.v_proj)]

    def compute(self, states: Any) -> list[KeysValues]:
        """Keys and values (B, S, C) of each layer, from the memory's states."""
        sentences, length, _ = states.shape
        self.x[: sentences * length].reshape(states.shape)[...] = states
        found = []
        for each in self.maps:
            assert each is not None
            found.append(room(self.x, sentences, length, each.outputs))
            each.output = address(found[-1])  # only the address: an idle program must not keep the last memory
        self.program.run(sentences, length)
        return list(zip(found[::2], found[1::2], strict=True))


class _Step:
    """A step with up to a number of rows. `program`: an empty program."""

    def __init__(self, program: Program, stack: Any) -> None:
        self.program, self.positions, self.padding = program, stack.embed_positions, stack.config.padding_index
        self.projection, (self.words, features) = stack.output_projection, stack.embed_tokens.weight.shape
        self.seen_target, self.seen_memory = Seen(), Seen()
        self.target: list[Attention] = []
        self.memory: list[Attention] = []
        rooms = program.room(features, stack.layers[0].fc1.out_features)
        self.embedding = program.embed(stack, rooms.x)
        program.enter(stack.stack_connection, rooms)
        for layer in stack.layers:
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
        self.logits = program.last_map(self.projection, rooms.x)
        self.places = np.empty(program.rows, np.int64)
        self.embedding.point("places", self.places)
        self.x = rooms.x

    def compute(self, tokens: Any, state: Any) -> Any:
        """Logits (B, K, V) for the token after `tokens` (B, K)."""
        sentences, beams = tokens.shape
        self.embedding.point("tokens", tokens)
        if self.positions is not None:
            self.positions.grow(state.length)
            self.places.fill(self.padding + state.length)
            self.embedding.point("positions", self.positions.rows)
        self._see(state)
        logits = None
        if self.logits is not None:
            logits = room(self.x, sentences, beams, self.words)
            self.logits.output = address(logits)
        self.program.run(sentences, beams)
        if logits is None:
            logits = self.projection.compute(self.x[: sentences * beams]).reshape(sentences, beams, self.words)
        return logits

    def _see(self, state: Any) -> None:
        slots, beams, sources = state.slots, state.slots.shape[1], state.source_slots
        target, memory = self.seen_target, self.seen_memory
        target.point("place", state.places)
        target.point("slots", slots)
        target.count, target.beams = state.length, beams
        target.slots_sentence, target.slots_beam = beams * slots.shape[2], slots.shape[2]
        memory.point("place", state.places)
        memory.point("slots", sources)
        memory.point("counts", state.source_counts)
        memory.beams, memory.slots_sentence = beams, sources.shape[1]
        # only addresses: the state keeps the tensors alive, and an idle program must not keep the last batch's memory
        for attentions, keys_values in ((self.target, state.target), (self.memory, state.memory)):
            for attention, (key, value) in zip(attentions, keys_values, strict=True):
                attention.key, attention.value = address(key), address(value)
                attention.slots_per_place = key.shape[1]
        last, weights = self.memory[-1], state.attention
        last.weights = None if weights is None else address(weights)
        last.weights_beam = sources.shape[1]

    def decoding(
        self, memory: Sequence[KeysValues], source_slots: np.ndarray, source_counts: np.ndarray
    ) -> CpuDecoding | None:
        """As `StackDecoder.decoding`."""
        whole = self.program.whole()
        if whole is None or self.logits is None:
            return None
        operations, work = whole
        keys, values = (addresses([each[part] for each in memory]) for part in (0, 1))
        decoding = CpuDecoding(
            program=operations, embedding=self.embedding, places=self.places, target=self.seen_target,
            memory=self.seen_memory, targets=addresses(self.target), memories=addresses(self.memory), keys=keys,
            values=values, source_slots=source_slots, source_counts=source_counts, layers=len(keys),
            features=self.x.shape[1], source=source_slots.shape[1], first_place=self.padding,
            rows_to_share=-(-WORK_TO_SHARE // max(work, 1)), type=TYPES[kind_of(self.x)],
        )  # fmt: skip
        decoding.step = self
        return decoding
