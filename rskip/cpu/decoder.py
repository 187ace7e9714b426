"""Token-by-token decoding on a CPU with the compiled kernels. B sentences, K beams, S source length, C features."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn import functional

from rskip.cpu.decoding import CpuDecoding, Step
from rskip.cpu.encoding import Projection, unpadded
from rskip.cpu.library import Library
from rskip.cpu.module_program import CpuStack, ModuleProgram
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
        self.source_slots, self.source_counts = map(torch.from_numpy, unpadded(padding.numpy()))
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
        super().__init__(decoder, library, lambda rows: _Step(decoder, library, rows))
        self.decoder = decoder
        self._projection = _MemoryStack(decoder, library)

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
        step = self.program(len(state.places) * beams)
        return step.decoding(state.memory, state.source_slots.numpy(), state.source_counts.numpy())

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


class _MemoryStack(CpuStack[Projection]):
    """Computes each layer's keys and values of the memory."""

    def __init__(self, decoder: Decoder, library: Library) -> None:
        like = decoder.embed_tokens.weight
        super().__init__(
            decoder, library, lambda rows: Projection(ModuleProgram(library, like, rows), decoder, like, rows)
        )
        self.decoder = decoder

    def compute(self, states: Tensor) -> list[KeysValues]:
        """Keys and values (B, S, C) of each layer, from the memory's states (B, S, C)."""
        sentences, length, _ = states.shape
        if states.numel():
            program = self.program(sentences * length)
            if program.suits and states.dtype == program.x.dtype and states.size(2) == program.x.size(1):
                return program.compute(states)
        projected = [layer.encoder_attn.project(states) for layer in self.decoder.decoder_layers()]
        return [(_joined(each.key), _joined(each.value)) for each in projected]


def _joined(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2).flatten(2).contiguous()  # (B, H, S, D) -> (B, S, C)


def _with_slots(like: KeysValues, count: int, *, kept: int = 0) -> KeysValues:
    key, value = (each.new_empty(each.size(0), count, each.size(2)) for each in like)
    if kept:
        key[:, :kept], value[:, :kept] = like
    return key, value


class _Step(Step):
    """A step whose logits PyTorch's search receives."""

    def __init__(self, decoder: Decoder, library: Library, rows: int) -> None:
        super().__init__(ModuleProgram(library, decoder.embed_tokens.weight, rows), decoder)
        self.projection = decoder.output_projection

    def compute(self, tokens: Tensor, state: CpuState) -> Tensor:
        """Logits (B, K, V) for the token after `tokens` (B, K)."""
        (sentences, beams), rows = tokens.shape, tokens.numel()
        self._embed(tokens, state.length)
        self._see(state)
        if self.logits is None:
            self.program.run(sentences, beams)
            return self.projection(self.x[:rows]).view(sentences, beams, self.projection.out_features)
        logits = torch.empty(sentences, beams, self.logits.outputs, dtype=self.x.dtype)
        self.logits.output = logits.data_ptr()
        self.program.run(sentences, beams)
        return logits

    def _embed(self, tokens: Tensor, length: int) -> None:
        self.embedding.point("tokens", tokens)
        if self.positions is not None:
            self.positions.grow(length)
            self.places.fill(self.padding + length)
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
