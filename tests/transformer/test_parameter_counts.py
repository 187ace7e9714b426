"""The sizes that the papers name, counted."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer import Transformer, TransformerConfig


def count(connection: str, embed_dim: int, ffn_embed_dim: int, heads: int) -> int:
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in [
            ("embed_dim", embed_dim),
            ("ffn_embed_dim", ffn_embed_dim),
            ("attention_heads", heads),
            ("connection", connection),
        ]
    }
    with torch.device("meta"):
        model = Transformer(TransformerConfig(37000, 37000, share_all_embeddings=True, **sides))
    return sum(parameter.numel() for parameter in model.parameters())


BASE = (512, 2048, 8)
BIG = (1024, 4096, 16)


def test_base_has_63_million_and_big_214_million():
    # embeddings + 6 encoder layers + 6 decoder layers, each: attention 4(h² + h), feed-forward, one norm a connection
    def expected(h: int, inner: int) -> int:
        attention, feed_forward, norm = 4 * (h * h + h), 2 * h * inner + inner + h, 2 * h
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        return 37000 * h + 6 * encoder_layer + 6 * decoder_layer

    assert count("1xskip+ln", *BASE) == expected(512, 2048) == 63_082_496
    assert count("1xskip+ln", *BIG) == expected(1024, 4096) == 214_245_376


@pytest.mark.parametrize(
    ("connection", "base", "big"),
    [
        ("2rskip+ln", 30_720, 61_440),
        ("3rskip+ln", 61_440, 122_880),
        ("2xskip+ln", 0, 0),
        ("wskip+ln", 15_360, 30_720),
        ("sas", 31_518_780, 125_952_060),
        ("prenorm+ln", 2_048, 4_096),
    ],
)
def test_what_a_connection_adds_to_the_baseline(connection, base, big):
    assert count(connection, *BASE) - count("1xskip+ln", *BASE) == base
    assert count(connection, *BIG) - count("1xskip+ln", *BIG) == big
