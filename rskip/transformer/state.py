"""The state of decoding token by token. B sentences, K beams, H heads, N target positions, S source length.

All beams of a sentence share the keys and values of all decoded positions. A mask marks the positions in each beam's
history, so reordering the beams changes only the mask. On a CPU, positions that no beam sees any more are removed
whenever the number of positions has doubled.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rskip.transformer.attention import KeyValue

_FEWEST = 64  # number of positions below which unused ones are not removed


@dataclass
class LayerCache:
    """The keys and values of one decoder layer.

    `memory` has those of the memory (B, H, S, D), if the decoder has one, and `target` those of the positions so far
    (B, H, N, D). `attention` (B, K, S) has the last step's weights over the memory, if requested.
    """

    memory: KeyValue | None = None
    target: KeyValue | None = None
    wants_attention: bool = False
    attention: Tensor | None = None

    def extend(self, new: KeyValue) -> KeyValue:
        """Appends the keys and values of each beam's next position (B, H, K, D), or of a prompt, and returns all."""
        past = self.target
        if past is not None:
            new = KeyValue(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
        self.target = new
        return new

    def keep(self, positions: Tensor) -> None:
        """Keeps these positions (B, N') of each sentence's target."""
        if self.target is not None:
            _, heads, _, features = self.target.key.shape
            index = positions[:, None, :, None].expand(-1, heads, -1, features)
            self.target = KeyValue(self.target.key.gather(2, index), self.target.value.gather(2, index))

    def select(self, sentences: Tensor) -> None:
        """Keeps only the given sentences, in the given order."""
        if self.memory is not None:
            self.memory = _selected(self.memory, sentences)
        if self.target is not None:
            self.target = _selected(self.target, sentences)


class IncrementalState:
    """The target so far, with each layer's keys and values of the target and the memory.

    `length` is the number of positions so far. `position` is the embedding index of the last one: (B, 1), or (1, 1) for
    all sentences. `mask` (B, 1, K, N) is added to scores; it is 0 at the positions that a beam sees. `memory_mask`
    (B, 1, 1, S) is added to scores over the memory; it is None without padding or memory.

    :param layers: each layer's keys and values of the memory, and of the positions so far.
    """

    def __init__(
        self, layers: list[LayerCache], mask: Tensor, position: Tensor, memory_mask: Tensor | None = None
    ) -> None:
        self.layers, self.mask, self.position, self.memory_mask = layers, mask, position, memory_mask
        self.length = mask.size(3)
        self._room = _FEWEST

    @property
    def attention(self) -> Tensor | None:
        """The last layer's weights over the memory at the last step (B, K, S), if requested."""
        return self.layers[-1].attention

    def advance(self) -> None:
        """Adds a position for each beam, which only that beam sees."""
        sentences, _, beams, _ = self.mask.shape
        own = self.mask.new_full((beams, beams), float("-inf")).fill_diagonal_(0)
        self.mask = torch.cat([self.mask, own.expand(sentences, 1, -1, -1)], 3)
        self.length += 1
        self.position = self.position + 1

    def reorder(self, parents: Tensor, sentences: Tensor | None = None) -> None:
        """Beam k of each sentence continues beam `parents[:, k]`.

        `parents` (B', K') are beams of the same sentence. `sentences` (B') are the sentences to keep; None keeps all.
        """
        if sentences is not None:
            self.mask = self.mask.index_select(0, sentences)
            if self.position.size(0) > 1:
                self.position = self.position.index_select(0, sentences)
            if self.memory_mask is not None:
                self.memory_mask = self.memory_mask.index_select(0, sentences)
            for layer in self.layers:
                layer.select(sentences)
        self.mask = self.mask.gather(2, parents[:, None, :, None].expand(-1, -1, -1, self.mask.size(3)))
        if self.mask.size(3) > self._room and self.mask.device.type == "cpu":
            self._leave_out_unseen()

    def _leave_out_unseen(self) -> None:
        """Removes positions that no beam sees. It runs only on a CPU, because it would wait for another device."""
        seen = self.mask[:, 0].eq(0).any(1)  # (B, N)
        most = int(seen.sum(1).max())
        positions = seen.int().argsort(dim=1, descending=True, stable=True)[:, :most]
        self.mask = self.mask.gather(3, positions[:, None, None].expand(-1, -1, self.mask.size(2), -1))
        for layer in self.layers:
            layer.keep(positions)
        self._room = max(_FEWEST, 2 * most)


def _selected(pair: KeyValue, rows: Tensor) -> KeyValue:
    return KeyValue(pair.key.index_select(0, rows), pair.value.index_select(0, rows))
