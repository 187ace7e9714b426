"""Configurations round-trip, and contradictions are refused in one line."""

from __future__ import annotations

import json

import pytest

from rskip.transformer import TransformerConfig


def test_round_trip_through_json():
    config = TransformerConfig(100, 200, encoder_connection="sas:gate=single", dropout=0.3, decoder_layers=2)
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_embed_dim": 30, "encoder_attention_heads": 4}, "encoder_embed_dim=30 does not divide"),
        ({"decoder_embed_dim": 9, "decoder_attention_heads": 3}, "decoder_embed_dim=9 is odd"),
        ({"decoder_layers": 0}, "decoder_layers=0: expected at least 1"),
        ({"dropout": 1.5}, r"dropout=1.5: expected a probability in \[0, 1\)"),
        ({"activation_fn": "rleu"}, "activation_fn='rleu': expected one of relu"),
        ({"encoder_connection": "2rskp+ln"}, "rskip"),
        ({"share_all_embeddings": True}, "needs one joint dictionary .* have 100 and 200 symbols"),
    ],
)
def test_contradictions(changes, message):
    with pytest.raises(ValueError, match=message) as raised:
        TransformerConfig(100, 200, **changes)
    assert "\n" not in str(raised.value)


def test_unknown_key_names_the_nearest():
    with pytest.raises(ValueError, match="unknown key 'encoder_layer'.*did you mean 'encoder_layers'"):
        TransformerConfig.from_dict({"source_vocabulary": 9, "target_vocabulary": 9, "encoder_layer": 3})
