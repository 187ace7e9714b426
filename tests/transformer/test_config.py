"""Configurations round-trip, and contradictions are refused in one line."""

from __future__ import annotations

import json
import math

import pytest
import torch

from rskip.settings.errors import SettingError
from rskip.transformer import TransformerConfig
from rskip.transformer.layers import ACTIVATIONS


def test_round_trip_through_json():
    config = TransformerConfig(100, 200, encoder_connection="sas:gate=single", dropout=0.3, decoder_layers=2)
    assert TransformerConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


PROBABILITY = "a probability, 0 or more and below 1"
WRONG = [  # what is changed, the setting that is wrong, what is expected
    ({"source_vocabulary": 1}, "source_vocabulary", "more than padding_index, 1"),
    ({"encoder_embed_dim": 30}, "encoder_embed_dim", "a multiple of the number of the encoder's heads, 8"),
    ({"decoder_attention_heads": 0}, "decoder_attention_heads", "a whole number, 1 or more"),
    ({"encoder_layers": 1.5}, "encoder_layers", "a whole number, 1 or more and at most 1000"),
    ({"max_source_positions": math.nan}, "max_source_positions", "a whole number, 1 or more and at most 1,000,000"),
    ({"decoder_embed_dim": 9, "decoder_attention_heads": 3}, "decoder_embed_dim", "an even number, for sinusoidal"),
    ({"decoder_layers": 0}, "decoder_layers", "1 or more"),
    ({"dropout": 1.5}, "dropout", PROBABILITY),
    ({"encoder_layerdrop": -0.1}, "encoder_layerdrop", PROBABILITY),
    ({"value_residual": "fixd"}, "value_residual", "fixed"),
    ({"value_residual": "fixed", "encoder_layerdrop": 0.1}, "encoder_layerdrop", "0 with value_residual fixed"),
    ({"activation_fn": "rleu"}, "activation_fn", "one of relu, gelu"),
    ({"encoder_connection": "2rskp+ln"}, "encoder_connection", "(did you mean '2rskip+ln'?)"),
]


def test_contradictions_name_the_setting():
    for changes, name, expected in WRONG:
        with pytest.raises(SettingError) as raised:
            TransformerConfig(**{"source_vocabulary": 100, "target_vocabulary": 200, **changes})
        assert raised.value.name == name and expected in raised.value.expected, name
    assert str(raised.value).startswith("encoder_connection is '2rskp+ln': expected a connection from docs")
    for sizes, needed, found in (
        ({"target_vocabulary": 200}, "one joint dictionary", "100 and 200 symbols"),
        ({"decoder_embed_dim": 64}, "equal embedding sizes", "512 and 64 features"),
    ):
        problem = f"^share_all_embeddings needs {needed}, but source and target have {found}$"
        given = {"source_vocabulary": 100, "target_vocabulary": 100, "share_all_embeddings": True, **sizes}
        with pytest.raises(SettingError, match=problem):
            TransformerConfig(**given)


def test_values_of_other_types_and_unknown_keys_are_refused():
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    assert TransformerConfig.from_dict({**sizes, "dropout": 0}) == TransformerConfig(9, 9, dropout=0)
    with pytest.raises(SettingError, match="unknown key encoder_layer; did you mean encoder_layers"):
        TransformerConfig.from_dict({**sizes, "encoder_layer": 3})
    others = {"encoder_layers": 2.0, "encoder_learned_pos": 1, "dropout": True, "activation_fn": None}
    for name, value in others.items():
        with pytest.raises(SettingError, match=f"{name} is {value}: expected"):
            TransformerConfig.from_dict({**sizes, name: value})


def test_activations():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)
    tanh_gelu = x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    expected = {
        "relu": x.clamp(min=0), "gelu": x / 2 * (1 + torch.erf(x / math.sqrt(2))), "gelu_accurate": tanh_gelu,
        "gelu_fast": tanh_gelu, "tanh": torch.tanh(x), "linear": x, "swish": x / (1 + torch.exp(-x)),
    }  # fmt: skip
    assert expected.keys() == ACTIVATIONS.keys()
    for name, y in expected.items():
        torch.testing.assert_close(ACTIVATIONS[name](x), y)
