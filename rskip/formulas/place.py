"""Position of a block in its model, for families whose formula depends on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rskip.settings.errors import SettingError

BRANCHES = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "encoder_attn", "ffn"), "network": ("block",)}


@dataclass(frozen=True)
class Place:
    """A block position: where a block is in its stack. All counts start at 1.

    :param stack: "encoder" or "decoder"; "network" for images, and if attention and feed-forward are one block.
    :param branch: "self_attn", "encoder_attn" or "ffn"; "block" in a network.
    :param sublayer: number of the block in the stack.
    :param sublayers: number of blocks in the stack.
    :param layer: number of the layer that contains the block. In a network each block is one layer.
    :param layers: number of layers in the stack.
    :param other_layers: number of layers in the other stack; 0 if there is no other stack.
    :raises SettingError: a value is not valid, or the numbers contradict each other.
    """

    stack: str
    branch: str
    sublayer: int
    sublayers: int
    layer: int
    layers: int
    other_layers: int = 0

    def __post_init__(self) -> None:
        if self.branch not in BRANCHES.get(self.stack, ()):
            known = "; ".join(f"{stack}: {', '.join(branches)}" for stack, branches in BRANCHES.items())
            raise SettingError.of_value("place", self, f"one of these stacks and branches: {known}")
        layers, layer, blocks = self.layers, self.layer, self.sublayers
        counts = 1 <= layer <= layers <= blocks and self.other_layers >= 0 and blocks % layers == 0
        if not counts or layer != -(-self.sublayer // (blocks // layers)):
            expected = "sublayers a multiple of layers, and layer that of sublayer, from 1 to layers"
            raise SettingError.of_value("place", self, expected)

    def first_layers(self, ratio: float) -> int:
        """The number of layers in this share of the stack, rounded down."""
        return math.floor(ratio * self.layers + 1e-9)  # 0.58 · 50 is 28.999... in floats

    @property
    def crosses(self) -> bool:
        """Whether the stack's layers have cross-attention. A decoder with two blocks per layer has none."""
        return self.stack == "decoder" and self.sublayers > 2 * self.layers

    @property
    def precedes_ffn(self) -> bool:
        """Whether the layer's next block is its feed-forward block."""
        return self.branch == ("encoder_attn" if self.crosses else "self_attn")

    @property
    def begins_layer(self) -> bool:
        """Whether the block is the first of its layer."""
        return (self.sublayer - 1) * self.layers == (self.layer - 1) * self.sublayers

    @property
    def ends_layer(self) -> bool:
        """Whether the block is the last of its layer."""
        return self.sublayer * self.layers == self.layer * self.sublayers
