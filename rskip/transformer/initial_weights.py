"""Initial weights as in GPT-2, and stacks without biases."""

from __future__ import annotations

import math
from functools import partial

from torch import nn

from rskip.connections import Connection
from rskip.connections.linear import Linear
from rskip.transformer.decoder import DecoderStack

_LAST_MAPS = ("out_proj", "fc2")  # of each branch


def draw_as_gpt2(decoder: DecoderStack, std: float) -> None:
    """Draws all weights of a decoder without an encoder from N(0, std²), and sets biases to 0.

    The last linear map of each of the N blocks starts smaller, by 1/√N (Radford et al. 2019, section 2.3). Gates of
    connections start as the other linear maps, and a connection's `branch_gain` multiplies its branch's weights too.
    """
    draw, draw_last = (partial(nn.init.normal_, std=each) for each in (std, std / math.sqrt(2 * len(decoder.layers))))
    for module in (decoder.embed_tokens, decoder.embed_positions, decoder.output_projection):
        if isinstance(module, nn.Embedding | nn.Linear):
            draw(module.weight)
    if decoder.padding_index is not None:
        nn.init.zeros_(decoder.embed_tokens.weight[decoder.padding_index])
    for name, module in decoder.layers.named_modules():
        if isinstance(module, Linear):
            module.first_weight = draw_last if name.endswith(_LAST_MAPS) else draw
            module.first_bias = 0.0
            module.reset_parameters()
        elif isinstance(module, Connection):
            module.reset_parameters(draw)


def remove_biases(decoder: DecoderStack) -> None:
    """Removes the biases of the decoder's linear maps and layer normalisations. Gates of connections keep theirs."""
    for module in decoder.modules():
        if isinstance(module, Linear | nn.LayerNorm):
            module.bias = None  # type: ignore[assignment]
