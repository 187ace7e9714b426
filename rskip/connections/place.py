"""Where a connection stands in its model, for families whose formula depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A block's place in its stack; all counts are from 1.

    :param stack: encoder or decoder; network on images.
    :param branch: self_attn, encoder_attn or ffn; block on images.
    :param sublayer: the block, of `sublayers` in the stack.
    :param layer: the layer that it is in, of `layers`; on images each block is a layer.
    :param other_layers: layers of the other stack, 0 where there is none.
    """

    stack: str
    branch: str
    sublayer: int
    sublayers: int
    layer: int
    layers: int
    other_layers: int = 0

    @property
    def ends_layer(self) -> bool:
        """Whether the block is its layer's last."""
        return self.sublayer * self.layers == self.layer * self.sublayers
