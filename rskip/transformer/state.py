"""What incremental decoding keeps. B sentences, K beams, H heads, N slots, S source length, D features of a head.

The beams of a sentence write their keys and values into slots that they share, and each beam sees the slots of its own
history. So when beams are reordered nothing moves but that visibility; slots that no beam sees any more are given back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.transformer.attention import KeyValue

_FIRST_CAPACITY = 32  # slots


class DecoderState:
    """The target so far, each layer's keys and values of it and of the memory.

    length: positions so far. memory: each layer's keys and values (B, H, S, D). memory_mask: (B, 1, 1, S), added to
    scores, or None without padding. target: each layer's slots (B, H, N, D), of which `used` are written. mask:
    (B, 1, K, N), added to scores, 0 where a beam sees a slot; None while no sentence has had several beams.
    attention: (B, K, S), the last layer's weights over the memory at the last step, where asked for.
    """

    def __init__(self, memory: list[KeyValue], padding: Tensor, *, attention: bool) -> None:
        self.length = 0
        self.used = 0
        self.memory = memory
        self.wants_attention = attention
        self.attention: Tensor | None = None
        self.mask: Tensor | None = None
        key = memory[0].key
        self.memory_mask: Tensor | None = None
        if bool(padding.any()):
            self.memory_mask = _minus_infinity_at(padding[:, None, None], key)
        self.target: list[KeyValue] = []

    def open_slots(self, beams: int) -> slice:
        """Slots for the next position of each beam, which it alone sees."""
        if self.target and self.used + beams > self.target[0].key.size(2):
            self._make_room(beams)
        slots = slice(self.used, self.used + beams)
        self.used += beams
        self.length += 1
        if self.mask is None and beams > 1:
            self.mask = self._see_all(beams)
        if self.mask is not None:
            self.mask[:, :, :, slots] = _minus_infinity_at(~torch.eye(beams, dtype=torch.bool), self.mask)
        return slots

    def write(self, layer: int, slots: slice, new: KeyValue) -> KeyValue:
        """Puts the new keys and values (B, H, K, D) into their slots and gives all that are written."""
        if layer == len(self.target):
            self.target.append(_empty_like(new, _FIRST_CAPACITY * new.key.size(2)))
        buffer = self.target[layer]
        buffer.key[:, :, slots] = new.key
        buffer.value[:, :, slots] = new.value
        return KeyValue(buffer.key[:, :, : self.used], buffer.value[:, :, : self.used])

    @property
    def target_mask(self) -> Tensor | None:
        """(B, 1, K, used), added to scores, or None where every slot is seen."""
        return None if self.mask is None else self.mask[:, :, :, : self.used]

    def reorder(self, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Beam k of each sentence continues beam `parents[:, k]`.

        `parents` (B', K') are beams of the same sentence; `sentences` (B') the sentences that stay, None all.
        """
        if sentences is not None:
            self._select(sentences)
        if self.mask is None:
            if parents.size(1) == 1 or not self.target:
                return
            self.mask = self._see_all(1)
        index = parents[:, None, :, None].expand(-1, -1, -1, self.used)
        reordered = self.mask.new_empty(parents.size(0), 1, parents.size(1), self.mask.size(3))
        reordered[:, :, :, : self.used] = self.mask[:, :, :, : self.used].gather(2, index)
        self.mask = reordered

    def _see_all(self, beams: int) -> Tensor:
        key = self.memory[0].key
        capacity = self.target[0].key.size(2) if self.target else _FIRST_CAPACITY * beams
        return key.new_zeros(key.size(0), 1, beams, capacity)

    def _select(self, sentences: Tensor) -> None:
        selection = _Selection(sentences)
        self.memory = [KeyValue(selection.of(each.key), selection.of(each.value)) for each in self.memory]
        self.target = [KeyValue(selection.of(each.key), selection.of(each.value)) for each in self.target]
        if self.memory_mask is not None:
            self.memory_mask = selection.of(self.memory_mask)
        if self.mask is not None:
            self.mask = selection.of(self.mask)

    def _make_room(self, beams: int) -> None:
        """Gives back the slots that no beam sees; where that is not enough to go on for a while, adds slots."""
        if self.mask is not None:
            seen = self.mask[:, 0, :, : self.used].eq(0).any(1)  # (B, N)
            kept = int(seen.sum(1).max())
            order = seen.int().argsort(dim=1, descending=True, stable=True)[:, :kept]
            self.mask[:, :, :, :kept] = self.mask.gather(
                3, order[:, None, None].expand(-1, -1, self.mask.size(2), -1)
            )
            for layer in self.target:
                index = order[:, None, :, None].expand(-1, layer.key.size(1), -1, layer.key.size(3))
                layer.key[:, :, :kept] = layer.key.gather(2, index)
                layer.value[:, :, :kept] = layer.value.gather(2, index)
            self.used = kept
        capacity = self.target[0].key.size(2)
        if 4 * (self.used + beams) > 3 * capacity:
            slots = 2 * max(capacity, self.used + beams)
            self.target = [_grown(each, self.used, slots) for each in self.target]
            if self.mask is not None:
                added = self.mask.new_empty(*self.mask.shape[:3], slots - capacity)
                self.mask = torch.cat([self.mask, added], dim=3)


class _Selection:
    """The rows `sentences` of a tensor. Where few move, they are moved in place."""

    def __init__(self, sentences: Tensor) -> None:
        self.sentences = sentences
        self.moved = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        self.sources = sentences[self.moved]

    def of(self, tensor: Tensor) -> Tensor:
        count = len(self.sentences)
        if count > tensor.size(0) or 2 * len(self.moved) > count:
            return tensor.index_select(0, self.sentences)
        if len(self.moved):
            tensor[self.moved] = tensor[self.sources]
        return tensor[:count]


def _minus_infinity_at(hidden: Tensor, like: Tensor) -> Tensor:
    """0 where `hidden` is false and -inf where it is true, in the type of `like`."""
    zeros = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill_(hidden.to(like.device), float("-inf"))


def _empty_like(new: KeyValue, slots: int) -> KeyValue:
    batch, heads, _, features = new.key.shape
    return KeyValue(*(each.new_empty(batch, heads, slots, features) for each in (new.key, new.value)))


def _grown(buffer: KeyValue, used: int, slots: int) -> KeyValue:
    grown = _empty_like(buffer, slots)
    grown.key[:, :, :used] = buffer.key[:, :, :used]
    grown.value[:, :, :used] = buffer.value[:, :, :used]
    return grown
