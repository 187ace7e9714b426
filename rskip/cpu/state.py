"""The state of step-by-step decoding with the kernels. B sentences, K beams, S source length, C features."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rskip.cpu.decoding import CpuDecoding, KeysValues, StackDecoder
from rskip.cpu.encoding import unpadded
from rskip.cpu.library import checked_indices
from rskip.transformer.encoder import Memory

_FIRST_SLOTS = 32  # initial slots per sentence, plus four per beam


class CpuState:
    """The state of a decoder between steps.

    Keys and values are in slots that a sentence's beams share. Each beam has a list of the slots in its own history, so
    reordering beams and removing sentences changes only these lists. `attention` (B, K, S) has the last layer's weights
    over the memory at the last step, if requested.
    """

    def __init__(self, decoder: StackDecoder, memory: Memory, *, attention: bool) -> None:
        sentences = memory.padding.size(0)
        assert memory.padding.shape == memory.states.shape[:2] and memory.padding.dtype == torch.bool
        self.decoder = decoder
        self.memory = decoder.project(memory.states)  # per layer, (places, S, C)
        self.target: list[KeysValues] = []  # per layer, (places, slots, C)
        self.places = torch.arange(sentences, dtype=torch.int32)  # (B) each sentence's index in these
        self.source_slots, self.source_counts = map(torch.from_numpy, unpadded(memory.padding.numpy()))
        self.slots = torch.zeros(sentences, 1, _FIRST_SLOTS, dtype=torch.int32)  # (B, K, room); `length` are used
        self.length = 0
        self._wants_attention = attention
        self.attention: Tensor | None = None

    @torch.no_grad()
    def step(self, tokens: Tensor) -> Any:
        """As `Decoder.step`."""
        tokens = checked_indices(self.decoder.library, tokens, self.decoder.words, "tokens")
        assert tokens.shape == self.slots.shape[:2], "one token per beam"
        self._open_slots(*tokens.shape)
        if self._wants_attention:
            self.attention = torch.empty(*tokens.shape, self.source_slots.size(1), dtype=torch.float32)
        return self.decoder.step(tokens, self)

    def decoding(self, beams: int) -> CpuDecoding | None:
        """What the compiled search needs to run all steps from a new state; None if PyTorch computes parts of them."""
        return self.decoder.decoding(self.memory, self.source_slots.numpy(), self.source_counts.numpy(), beams)

    def reorder(self, parents: Tensor, sentences: Tensor | None = None) -> None:
        """As `StepDecoder.reorder`."""
        library, before = self.decoder.library, self.slots
        parents = checked_indices(library, parents, before.size(1), "parents")
        if sentences is not None:
            sentences = checked_indices(library, sentences, before.size(0), "sentences")
            self.places = self.places[sentences]
            self.source_slots = self.source_slots[sentences]
            self.source_counts = self.source_counts[sentences]
        count, beams = parents.shape
        assert count == len(self.places), "one row of parents per sentence"
        self.slots = torch.empty(count, beams, before.size(2), dtype=torch.int32)
        library.reorder_slots(
            before.data_ptr(), self.slots.data_ptr(), None if sentences is None else sentences.data_ptr(),
            parents.data_ptr(), count, before.size(1), beams, before.size(2), self.length,
        )  # fmt: skip

    def _open_slots(self, sentences: int, beams: int) -> None:
        """Assigns a slot to the next position of each beam."""
        if self.length == self.slots.size(2):
            self.slots = functional.pad(self.slots, (0, self.length))
        if not self.target:
            self.target = [_with_slots(each, _FIRST_SLOTS + 4 * beams) for each in self.memory]
        count = self.target[0][0].size(1)
        while not self.decoder.library.open_slots(
            self.slots.data_ptr(), sentences, beams, self.slots.size(2), self.length,
            count, (ctypes.c_uint8 * count)(),
        ):  # fmt: skip
            self.target = [_with_slots(each, count + count // 2 + beams, kept=count) for each in self.target]
            count = self.target[0][0].size(1)
        self.length += 1


def _with_slots(like: KeysValues, count: int, *, kept: int = 0) -> KeysValues:
    key, value = (each.new_empty(each.size(0), count, each.size(2)) for each in like)
    if kept:
        key[:, :kept], value[:, :kept] = like
    return key, value
