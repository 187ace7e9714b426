"""What incremental decoding keeps. B sentences, K beams, H heads, N slots, S source length, D features of a head.

The beams of a sentence write their keys and values into slots that they share, and each beam sees the slots of its own
history. So when beams are reordered nothing moves but that visibility. On a CPU attention reads the slots that are
written, and those that no beam sees any more are given back. Elsewhere it reads all that there are, and numbers that
change from step to step are the device's own: nothing waits for it, and while there is room and no sentence leaves,
every step is the same operations on the same memory, which a CUDA graph could hold.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rskip.transformer.attention import KeyValue, additive_mask

_FIRST_CAPACITY = 32  # slots


class DecoderState:
    """The target so far, each layer's keys and values of it and of the memory.

    length: positions so far. position: (1, 1), the last one's index of an embedding. memory: each layer's keys and
    values (B, H, S, D). memory_mask: (B, 1, 1, S), added to scores, or None without padding. target: each layer's slots
    (B, H, N, D), of which `used` are written. mask: (B, 1, K, N), added to scores, 0 where a beam sees a slot; None
    while every written slot is seen. attention: (B, K, S), the last layer's weights over the memory at the last step,
    where asked for.

    :param position: the index before the first.
    """

    def __init__(
        self, memory: list[KeyValue], memory_mask: Tensor | None, *, position: int, attention: bool
    ) -> None:
        key = memory[0].key
        self.static = key.device.type != "cpu"
        self.length = 0
        self.position = torch.full((1, 1), position, device=key.device)
        self.used = 0
        self.memory = memory
        self.memory_mask = memory_mask
        self.wants_attention = attention
        self.attention: Tensor | None = None
        self.mask: Tensor | None = None
        self.target: list[KeyValue] = []
        self._slots: Tensor | None = None  # static: of the last step
        self._own: Tensor | None = None  # (K, K), the mask of K new slots

    def open_slots(self, beams: int) -> slice | Tensor:
        """Slots for the next position of each beam, which it alone sees."""
        if self.target and self.used + beams > self.target[0].key.size(2):
            self._make_room(beams)
        if self.mask is None and (beams > 1 or self.static):
            self.mask = self._see_all(beams)
        slots = self._next_slots(beams)
        self.used += beams
        self.length += 1
        self.position += 1
        if self.mask is not None:
            if self._own is None or len(self._own) != beams:
                self._own = additive_mask(~torch.eye(beams, dtype=torch.bool, device=self.mask.device), self.mask)
            self.mask[:, :, :, slots] = self._own
        return slots

    def write(self, layer: int, slots: slice | Tensor, new: KeyValue) -> KeyValue:
        """Puts the new keys and values (B, H, K, D) into their slots and gives all that attention reads."""
        if layer == len(self.target):
            self.target.append(self._room(new, _FIRST_CAPACITY * new.key.size(2)))
        buffer = self.target[layer]
        buffer.key[:, :, slots] = new.key
        buffer.value[:, :, slots] = new.value
        if self.static:
            return buffer
        return KeyValue(buffer.key[:, :, : self.used], buffer.value[:, :, : self.used])

    @property
    def target_mask(self) -> Tensor | None:
        """(B, 1, K, N), added to scores, of the slots that `write` gives; None where every one is seen."""
        return self.mask if self.mask is None or self.static else self.mask[:, :, :, : self.used]

    def _next_slots(self, beams: int) -> slice | Tensor:
        if not self.static:
            return slice(self.used, self.used + beams)
        if self._slots is None or len(self._slots) != beams:
            self._slots = torch.arange(self.used, self.used + beams, device=self.position.device)
        else:
            self._slots += beams
        return self._slots

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
        seen = self.mask.size(3) if self.static else self.used
        reordered = self.mask[:, :, :, :seen].gather(2, parents[:, None, :, None].expand(-1, -1, -1, seen))
        if self.mask.shape[:3] != reordered.shape[:3]:
            self.mask = self.mask.new_empty(*reordered.shape[:3], self.mask.size(3))
        self.mask[:, :, :, :seen] = reordered

    def _see_all(self, beams: int) -> Tensor:
        key = self.memory[0].key
        capacity = self.target[0].key.size(2) if self.target else _FIRST_CAPACITY * beams
        mask = key.new_zeros(key.size(0), 1, beams, capacity)
        if self.static:
            mask[:, :, :, self.used :] = float("-inf")
        return mask

    def _select(self, sentences: Tensor) -> None:
        selection = _Selection(sentences)
        self.memory = [KeyValue(selection.of(each.key), selection.of(each.value)) for each in self.memory]
        self.target = [KeyValue(selection.of(each.key), selection.of(each.value)) for each in self.target]
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)  # not in place: the memory's own
        if self.mask is not None:
            self.mask = selection.of(self.mask)

    def _make_room(self, beams: int) -> None:
        """Gives back the slots that no beam sees; where that is not enough to go on for a while, adds slots.

        Static ones are not given back: how many are seen, only the device knows.
        """
        if self.mask is not None and not self.static:
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
            self.target = [self._grown(each, slots) for each in self.target]
            if self.mask is not None:
                added = self.mask.new_full((*self.mask.shape[:3], slots - capacity), float("-inf"))
                self.mask = torch.cat([self.mask, added], dim=3)

    def _room(self, like: KeyValue, slots: int) -> KeyValue:
        batch, heads, _, features = like.key.shape
        new = like.key.new_zeros if self.static else like.key.new_empty  # a masked slot must hold numbers
        return KeyValue(*(new((batch, heads, slots, features)) for _ in range(2)))

    def _grown(self, buffer: KeyValue, slots: int) -> KeyValue:
        grown = self._room(buffer, slots)
        grown.key[:, :, : self.used] = buffer.key[:, :, : self.used]
        grown.value[:, :, : self.used] = buffer.value[:, :, : self.used]
        return grown


class _Selection:
    """The rows `sentences` of a tensor. Where few move on a CPU, they are moved in place."""

    def __init__(self, sentences: Tensor) -> None:
        self.sentences = sentences
        if sentences.device.type != "cpu":
            return
        self.moved = (sentences != torch.arange(len(sentences), device=sentences.device)).nonzero().squeeze(1)
        self.sources = sentences[self.moved]

    def of(self, tensor: Tensor) -> Tensor:
        count = len(self.sentences)
        if self.sentences.device.type != "cpu" or count > tensor.size(0) or 2 * len(self.moved) > count:
            return tensor.index_select(0, self.sentences)
        if len(self.moved):
            tensor[self.moved] = tensor[self.sources]
        return tensor[:count]
