"""Token-by-token decoding on a CPU with the compiled kernels. B sentences, K beams, S source length, C features."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rskip.cpu.library import WORK_TO_SHARE, Library
from rskip.cpu.program import CpuStack, Program, unpadded
from rskip.cpu.structures import TYPES, Attention, Decoding, Embedding, Seen, addresses, kind_of
from rskip.cpu.tensors import checked_indices
from rskip.transformer.decoder import Decoder
from rskip.transformer.encoder import Memory

_FIRST_SLOTS = 32  # initial slots per sentence, plus four per beam

KeysValues = tuple[Tensor, Tensor]


class CpuState:
    """The state of `CpuDecoder` between steps.

    Keys and values are in slots that a sentence's beams share. Each beam has a list of the slots in its own history, so
    reordering beams and removing sentences changes only these lists. `attention` (B, K, S) has the last layer's weights
    over the memory at the last step, if requested.
    """

    def __init__(
        self, decoder: CpuDecoder, memory: list[KeysValues], padding: Tensor, *, attention: bool
    ) -> None:
        sentences = padding.size(0)
        self.decoder = decoder
        self.memory = memory  # per layer, (places, S, C)
        self.target: list[KeysValues] = []  # per layer, (places, slots, C)
        self.places = torch.arange(sentences, dtype=torch.int32)  # (B) each sentence's index in these
        self.source_slots, self.source_counts = unpadded(padding)
        self.slots = torch.zeros(sentences, 1, _FIRST_SLOTS, dtype=torch.int32)  # (B, K, room); `length` are used
        self.length = 0
        self.wants_attention = attention
        self.attention: Tensor | None = None

    def reorder(self, parents: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepDecoder.reorder`."""
        library = self.decoder.library
        parents = checked_indices(library, parents, self.slots.size(1), "parents")
        if sentences is not None:
            sentences = checked_indices(library, sentences, self.slots.size(0), "sentences")
        expected = self.slots.size(0) if sentences is None else len(sentences)
        if parents.ndim != 2 or parents.size(0) != expected:
            raise ValueError(f"parents are {tuple(parents.shape)}: expected ({expected}, beams)")
        if sentences is not None:
            self.places = self.places[sentences]
            self.source_slots = self.source_slots[sentences]
            self.source_counts = self.source_counts[sentences]
        before = self.slots
        if self.length == before.size(2):
            before = functional.pad(before, (0, before.size(2)))
        count, beams = parents.shape
        self.slots = torch.empty(count, beams, before.size(2), dtype=torch.int32)
        library.reorder_slots(
            before.data_ptr(), self.slots.data_ptr(), None if sentences is None else sentences.data_ptr(),
            parents.data_ptr(), count, before.size(1), beams, before.size(2), self.length,
        )  # fmt: skip


class CpuDecoder(CpuStack["_Step"]):
    """`Decoder`'s steps by the kernels, except for large linear maps and rare connections, which PyTorch computes.

    Logits equal `Decoder`'s up to rounding: sums are in float32 even in bfloat16.
    """

    def __init__(self, decoder: Decoder, library: Library) -> None:
        super().__init__(decoder, library)
        self.decoder = decoder
        self._projection = _MemoryStack(decoder, library)

    def build(self, rows: int) -> _Step:
        """A step with this number of rows."""
        return _Step(self.decoder, self.library, rows)

    @torch.no_grad()
    def start(self, memory: Memory, *, attention: bool = False) -> CpuState:
        """As `Decoder.start`."""
        if memory.padding.shape != memory.states.shape[:2] or memory.padding.dtype != torch.bool:
            raise ValueError(
                f"the memory's padding is {tuple(memory.padding.shape)} of {memory.padding.dtype}: "
                f"expected {tuple(memory.states.shape[:2])} of torch.bool, to match its states"
            )
        return CpuState(self, self._projection.compute(memory.states), memory.padding, attention=attention)

    @torch.no_grad()
    def step(self, tokens: Tensor, state: CpuState) -> Tensor:
        """As `Decoder.step`."""
        tokens = checked_indices(self.library, tokens, self.decoder.embed_tokens.num_embeddings, "tokens")
        if tokens.shape != state.slots.shape[:2]:
            raise ValueError(f"tokens are {tuple(tokens.shape)}: expected {tuple(state.slots.shape[:2])}, one per beam")
        sentences, beams = tokens.shape
        self._open_slots(state, sentences, beams)
        return self.program(sentences * beams).compute(tokens, state)

    def decoding(self, state: CpuState, beams: int) -> CpuDecoding | None:
        """What the compiled search needs to run all steps from a new state; None if modules compute parts of a step."""
        return self.program(len(state.places) * beams).decoding(state)

    def _open_slots(self, state: CpuState, sentences: int, beams: int) -> None:
        """Assigns a slot to the next position of each beam."""
        if not state.target:
            state.target = [_with_slots(each, _FIRST_SLOTS + 4 * beams) for each in state.memory]
        count = state.target[0][0].size(1)
        while not self.library.open_slots(
            state.slots.data_ptr(), sentences, beams, state.slots.size(2), state.length,
            count, (ctypes.c_uint8 * count)(),
        ):  # fmt: skip
            state.target = [_with_slots(each, count + count // 2 + beams, kept=count) for each in state.target]
            count = state.target[0][0].size(1)
        state.length += 1


class _MemoryStack(CpuStack["_MemoryMaps"]):
    """Computes each layer's keys and values of the memory."""

    def __init__(self, decoder: Decoder, library: Library) -> None:
        super().__init__(decoder, library)
        self.decoder = decoder

    def build(self, rows: int) -> _MemoryMaps:
        """The maps of this number of positions."""
        return _MemoryMaps(self.decoder, self.library, rows)

    def compute(self, states: Tensor) -> list[KeysValues]:
        """Keys and values (B, S, C) of each layer, from the memory's states (B, S, C)."""
        sentences, length, _ = states.shape
        if states.numel():
            found = self.program(sentences * length).compute(states)
            if found is not None:
                return found
        projected = [layer.encoder_attn.project(states) for layer in self.decoder.decoder_layers()]
        return [(_joined(each.key), _joined(each.value)) for each in projected]


class _MemoryMaps:
    """The maps of up to this number of positions of the memory, if kernels compute all of them."""

    def __init__(self, decoder: Decoder, library: Library, rows: int) -> None:
        layers = [layer.encoder_attn for layer in decoder.decoder_layers()]
        weight = decoder.embed_tokens.weight
        self.program = program = Program(library, weight, rows)
        self.x = weight.new_empty(rows, layers[0].k_proj.in_features)
        self.features = layers[0].k_proj.out_features
        self.maps = [program.last_map(each, self.x) for layer in layers for each in (layer.k_proj, layer.v_proj)]
        is_plain = all(layer.key_norm is None and layer.value_norm is None for layer in layers)
        self.suits = is_plain and all(each is not None for each in self.maps)

    def compute(self, states: Tensor) -> list[KeysValues] | None:
        """As `_MemoryStack.compute`; None if modules must compute them."""
        sentences, length, features = states.shape
        if not self.suits or states.dtype != self.x.dtype or features != self.x.size(1):
            return None
        self.x[: sentences * length].view_as(states).copy_(states)
        found = self.x.new_empty(len(self.maps), sentences, length, self.features)
        for number, each in enumerate(self.maps):
            assert each is not None
            each.output = found.data_ptr() + number * found.stride(0) * found.element_size()
        self.program.run(sentences, length)
        return list(zip(found[::2], found[1::2], strict=True))


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2).contiguous()  # (B, H, S, D) -> (B, S, C)


def _with_slots(like: KeysValues, count: int, *, kept: int = 0) -> KeysValues:
    key, value = (each.new_empty(each.size(0), count, each.size(2)) for each in like)
    if kept:
        key[:, :kept], value[:, :kept] = like
    return key, value


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


class _Step:
    """A step with up to this number of rows."""

    def __init__(self, decoder: Decoder, library: Library, rows: int) -> None:
        self.config, self.positions = decoder.config, decoder.embed_positions
        self.projection = decoder.output_projection
        weight = decoder.embed_tokens.weight
        self.type, self.words = weight.dtype, weight.size(0)
        self.seen_target, self.seen_memory = Seen(), Seen()
        self.target: list[Attention] = []
        self.memory: list[Attention] = []
        self.program = program = Program(library, weight, rows)
        room = program.room(weight.size(1), decoder.config.decoder_ffn_embed_dim)
        self.embedding = program.embed(decoder, room.x)
        program.enter(decoder.stack_connection, room)
        for layer in decoder.decoder_layers():
            over_target = program.self_attention(layer, self.seen_target, room)
            over_target.point("new_key", room.key)
            over_target.point("new_value", room.value)
            self.target.append(over_target)
            cross, connection = layer.encoder_attn, layer.encoder_attn_connection
            program.query(cross, program.branch_input(connection, room), room)
            self.memory.append(program.attend(self.seen_memory, room.query, room.query, cross.heads))
            program.attention_output(cross, room)
            program.join(connection, room)
            program.feed_forward(layer, room)
        program.leave(decoder.stack_connection, room)
        program.norm(decoder.layer_norm, room.x)
        self.logits = program.last_map(self.projection, room.x)
        self.places = torch.empty(rows, dtype=torch.int64)
        self.embedding.point("places", self.places)
        self.x = room.x

    def compute(self, tokens: Tensor, state: CpuState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K)."""
        (sentences, beams), rows = tokens.shape, tokens.numel()
        self._embed(tokens, state.length)
        self._see(state)
        if self.logits is None:
            self.program.run(sentences, beams)
            return self.projection(self.x[:rows]).view(sentences, beams, self.projection.out_features)
        logits = torch.empty(sentences, beams, self.logits.outputs, dtype=self.type)
        self.logits.output = logits.data_ptr()
        self.program.run(sentences, beams)
        return logits

    def decoding(self, state: CpuState) -> CpuDecoding | None:
        """See `CpuDecoder.decoding`."""
        whole, logits = self.program.whole(), self.logits
        if whole is None or logits is None or logits.outputs != self.words:
            return None
        operations, work = whole
        keys, values = (addresses([each[part] for each in state.memory]) for part in (0, 1))
        arguments = Decoding(
            program=operations, embedding=self.embedding, places=self.places, target=self.seen_target,
            memory=self.seen_memory, targets=addresses(self.target), memories=addresses(self.memory), keys=keys,
            values=values, source_slots=state.source_slots, source_counts=state.source_counts, layers=len(keys),
            features=self.x.size(1), source=state.source_slots.size(1), first_place=self.config.padding_index,
            rows_to_share=-(-WORK_TO_SHARE // max(work, 1)), type=TYPES[kind_of(self.x)],
        )  # fmt: skip
        arguments.output = ctypes.addressof(logits) + type(logits).output.offset  # `embedding` and others keep it alive
        arguments.step = self
        return CpuDecoding(arguments, self.embedding, self.positions, logits.outputs)

    def _embed(self, tokens: Tensor, length: int) -> None:
        self.embedding.point("tokens", tokens)
        if self.positions is not None:
            self.positions.grow(length)
            self.places.fill_(self.config.padding_index + length)
            self.embedding.point("positions", self.positions.rows)

    def _see(self, state: CpuState) -> None:
        slots, beams = state.slots, state.slots.size(1)
        target, memory = self.seen_target, self.seen_memory
        target.point("place", state.places)
        target.point("slots", slots)
        target.count, target.beams = state.length, beams
        target.slots_sentence, target.slots_beam = slots.stride(0), slots.stride(1)
        memory.point("place", state.places)
        memory.point("slots", state.source_slots)
        memory.point("counts", state.source_counts)
        memory.beams, memory.slots_sentence = beams, state.source_slots.stride(0)
        # only addresses: the state keeps the tensors alive, and an idle program must not keep the last batch's memory
        for attentions, keys_values in ((self.target, state.target), (self.memory, state.memory)):
            for attention, (key, value) in zip(attentions, keys_values, strict=True):
                attention.key, attention.value = key.data_ptr(), value.data_ptr()
                attention.slots_per_place = key.size(1)
        last = self.memory[-1]
        last.weights = None
        if state.wants_attention:
            state.attention = torch.empty(slots.size(0), beams, state.source_slots.size(1))
            last.weights, last.weights_beam = state.attention.data_ptr(), state.attention.size(2)
