"""Position of a block in its model, for families whose formula depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from rskip.settings.errors import SettingError

BRANCHES = {"encoder": ("self_attn", "ffn"), "decoder": ("self_attn", "encoder_attn", "ffn"), "network": ("block",)}
_LEAST = {"sublayer": 1, "sublayers": 1, "layer": 1, "layers": 1, "other_layers": 0}


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
    :raises SettingError: a value is not valid; the error is named after it, such as `place.layer`.
    """

    stack: str
    branch: str
    sublayer: int
    sublayers: int
    layer: int
    layers: int
    other_layers: int = 0

    def __post_init__(self) -> None:
        if self.stack not in BRANCHES:
            raise self._wrong("stack", " or ".join(BRANCHES))
        if self.branch not in BRANCHES[self.stack]:
            raise self._wrong("branch", f"{' or '.join(BRANCHES[self.stack])} of stack {self.stack}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise self._wrong(name, f"a whole number from {least}")
        if self.sublayers % self.layers:
            raise self._wrong("sublayers", f"a multiple of layers, {self.layers}")
        a_layer = self.sublayers // self.layers
        if self.sublayer > self.sublayers:
            raise self._wrong("sublayer", f"at most sublayers, {self.sublayers}")
        if self.layer != (of_sublayer := -(-self.sublayer // a_layer)):
            raise self._wrong("layer", f"{of_sublayer}, the layer of sublayer {self.sublayer}")

    def _wrong(self, name: str, expected: str) -> SettingError:
        return SettingError.of_value(f"place.{name}", getattr(self, name), expected)

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
