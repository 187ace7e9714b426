"""Self-attention whose queries, keys and values read from three attentions over depth."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.transformer.test_language_model import LLAMA, build


def attended(layer: Any, sources: Tensor, query: Tensor) -> Tensor:
    norm = layer.self_attn_connection.attention.norm
    keys = sources / torch.sqrt((sources * sources).mean(-1, keepdim=True) + norm.eps) * norm.weight
    return torch.einsum("nbt,nbtc->btc", torch.einsum("c,nbtc->nbt", query, keys).softmax(0), sources)


def test_queries_keys_and_values_have_inputs_of_their_own():
    """The second layer, without rotation and masks beyond the causal one."""
    fields: dict[str, Any] = {**LLAMA, "rotary_theta": None, "decoder_key_value_heads": None}
    model: Any = build("attnres+rms:queries=3,blocks=4", **fields)
    layer, connection = model.decoder.layers[1], model.decoder.layers[1].self_attn_connection
    sources = torch.randn(3, 2, 5, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    norms = connection.norm, connection.key_norm, connection.value_norm
    queries = connection.attention.query
    inputs = [norm(attended(layer, sources, query)) for norm, query in zip(norms, queries, strict=True)]
    attention = layer.self_attn
    maps = attention.q_proj, attention.k_proj, attention.v_proj
    query, key, value = (map_(z).unflatten(-1, (4, 4)).transpose(1, 2) for map_, z in zip(maps, inputs, strict=True))
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    heads = (query @ key.mT / math.sqrt(4)).masked_fill(hidden, -math.inf).softmax(-1) @ value
    expected = layer.feed_forward((*sources, attention.out_proj(heads.transpose(1, 2).flatten(2))))
    found = layer(tuple(sources), None, None)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert (connection.attention.query[0] != connection.attention.query[1]).any()
