"""Names of fairseq's stock Transformer and ours."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from rskip.checkpoint import from_stock, stock_connection, to_stock
from rskip.transformer import Transformer, TransformerConfig

PAIRS = {
    "encoder.layers.3.self_attn_layer_norm.weight": "encoder.layers.3.self_attn_connection.norm.weight",
    "encoder.layers.3.final_layer_norm.bias": "encoder.layers.3.ffn_connection.norm.bias",
    "decoder.layers.10.self_attn_layer_norm.bias": "decoder.layers.10.self_attn_connection.norm.bias",
    "decoder.layers.9.encoder_attn_layer_norm.weight": "decoder.layers.9.encoder_attn_connection.norm.weight",
    "decoder.layers.10.final_layer_norm.weight": "decoder.layers.10.ffn_connection.norm.weight",
    "encoder.layers.0.self_attn.q_proj.weight": "encoder.layers.0.self_attn.q_proj.weight",
    "encoder.layers.0.self_attn.out_proj.bias": "encoder.layers.0.self_attn.out_proj.bias",
    "encoder.layers.0.fc1.weight": "encoder.layers.0.fc1.weight",
    "encoder.layer_norm.weight": "encoder.layer_norm.weight",
    "encoder.layernorm_embedding.weight": "encoder.layernorm_embedding.weight",
    "decoder.layer_norm.bias": "decoder.layer_norm.bias",
    "decoder.embed_positions.weight": "decoder.embed_positions.weight",
    "decoder.output_projection.weight": "decoder.output_projection.weight",
}
DEAD = [
    "encoder.layers.0.in_proj_weight",
    "encoder.layers.0.in_proj_bias",
    "encoder.layers.11.out_proj_weight",
    "encoder.layers.11.out_proj_bias",
    "encoder.layers.0.fc1_weight",
    "encoder.layers.0.fc1_bias",
    "encoder.layers.0.fc2_weight",
    "encoder.layers.0.fc2_bias",
    "encoder.version",
    "decoder.version",
    "encoder.embed_positions._float_tensor",
    "decoder.embed_positions._float_tensor",
]


def test_names_both_ways():
    stock = {name: torch.tensor(float(number)) for number, name in enumerate(PAIRS)}
    ours = {PAIRS[name]: tensor for name, tensor in stock.items()}
    assert from_stock(stock) == ours
    exported = to_stock(ours, connection="1xskip+ln")
    for stack in ("encoder", "decoder"):
        assert exported.pop(f"{stack}.version").item() == 3
    assert exported == stock


def test_what_is_not_the_model_is_dropped():
    assert from_stock({name: torch.ones(1) for name in [*DEAD, "encoder.layers.0.fc2.bias"]}).keys() == {
        "encoder.layers.0.fc2.bias"
    }


def test_only_connections_that_stock_has_are_exported():
    assert stock_connection(normalize_before=False) == "1xskip+ln"
    assert stock_connection(normalize_before=True) == "prenorm+ln"
    for connection in ("2xskip+ln", "2rskip+ln", "sas"):
        with pytest.raises(ValueError, match="no connection '.*', only 1xskip.ln and prenorm.ln"):
            to_stock({}, connection=connection)
    with pytest.raises(ValueError, match="no place for 'encoder.layers.0.ffn_connection.gate.weight'"):
        to_stock({"encoder.layers.0.ffn_connection.gate.weight": torch.ones(1)}, connection="1xskip+ln")


@pytest.mark.parametrize("normalize_before", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_a_stock_model_loads_here_and_back_strictly(normalize_before, shared, learned):
    pytest.importorskip("fairseq")
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel

    dictionary = Dictionary()
    for word in "abcd":
        dictionary.add_symbol(word)
    settings = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in {
            "embed_dim": 8,
            "ffn_embed_dim": 16,
            "layers": 2,
            "attention_heads": 2,
            "learned_pos": learned,
        }.items()
    }
    settings |= {"share_all_embeddings": shared, "layernorm_embedding": learned}
    normalize = {f"{stack}_normalize_before": normalize_before for stack in ("encoder", "decoder")}
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary)

    def build_stock() -> TransformerModel:
        return TransformerModel.build_model(Namespace(**settings, **normalize), task)

    connection = stock_connection(normalize_before=normalize_before)
    ours = Transformer(
        TransformerConfig(
            source_vocabulary=len(dictionary),
            target_vocabulary=len(dictionary),
            encoder_connection=connection,
            decoder_connection=connection,
            share_decoder_input_output_embed=shared,
            **settings,
        )
    )
    stock = build_stock()
    ours.load_state_dict(from_stock(stock.state_dict()), strict=True)

    other = build_stock()
    other.load_state_dict(to_stock(ours.state_dict(), connection=connection), strict=True)
    expected, found = from_stock(stock.state_dict()), from_stock(other.state_dict())
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    assert (other.encoder.layer_norm is not None) == normalize_before
