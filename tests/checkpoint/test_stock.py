"""Stock's names of parameters and ours, and models folded into stock."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rskip.checkpoint import from_stock, to_stock
from rskip.checkpoint.stock import fold_connections, stock_checkpoint
from rskip.checkpoint.tensors import tied_names
from rskip.transformer import Transformer, TransformerConfig
from tests.checkpoint.conftest import both

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


def test_names_both_ways():
    stock = {name: torch.tensor(float(number)) for number, name in enumerate(PAIRS)}
    ours = {PAIRS[name]: tensor for name, tensor in stock.items()}
    assert from_stock(stock) == ours
    exported = to_stock(ours, connection="1xskip+ln")
    for stack in ("encoder", "decoder"):
        assert exported.pop(f"{stack}.version").item() == 3
    assert exported == stock


VOCABULARY = 23


def build(encoder: str, decoder: str, **settings: Any) -> Transformer:
    """A small model in float64, its norms drawn so that none is the identity."""
    torch.manual_seed(0)
    sides = both(embed_dim=16, ffn_embed_dim=24, attention_heads=4, layers=2)
    connections = {"encoder_connection": encoder, "decoder_connection": decoder}
    config = TransformerConfig(VOCABULARY, VOCABULARY, **connections, **sides, **settings)
    model = Transformer(config).double().eval()
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name or "branch_weight" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def with_eps(model: Transformer, eps: float) -> Transformer:
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = eps
    return model


@torch.no_grad()
def logits(model: Transformer) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    source, prefix = (torch.randint(4, VOCABULARY, (3, length), generator=generator) for length in (7, 6))
    return model(source, prefix)


FOLDABLE = {  # to the stock connection, and whether the branch's last map is scaled
    "1xskip+ln": ("1xskip+ln", False),
    "2xskip+ln": ("1xskip+ln", True),
    "4xskip+ln:branch_scale=2": ("1xskip+ln", True),
    "1rskip+ln": ("1xskip+ln", False),
    "prenorm+ln": ("prenorm+ln", False),
    "deepnorm": ("1xskip+ln", True),  # one factor a stack
    "askip+ln": ("1xskip+ln", True),
    "layerscale+ln": ("prenorm+ln", True),  # one factor a feature
}


@pytest.mark.parametrize("connection", FOLDABLE)
def test_the_folded_model_computes_the_same(connection):
    stock, scaled = FOLDABLE[connection]
    model = build(connection, connection)
    folded = fold_connections(model)
    expected = logits(with_eps(model, 0))
    assert folded.config.encoder_connection == folded.config.decoder_connection == stock
    # without eps the identity is exact
    torch.testing.assert_close(logits(with_eps(folded, 0)), expected, rtol=0, atol=1e-12)
    assert torch.equal(logits(model), expected), "the model itself was changed"
    if scaled:
        unfolded = with_eps(build(stock, stock), 0)
        assert (logits(unfolded) - expected).abs().max() > 0.1, "the factor makes no difference here"


def test_each_stack_folds_by_itself():
    model = build("1xskip+ln:branch_scale=2", "prenorm+ln", share_all_embeddings=True)
    folded = fold_connections(model)
    assert (folded.config.encoder_connection, folded.config.decoder_connection) == ("1xskip+ln", "prenorm+ln")
    torch.testing.assert_close(logits(with_eps(folded, 0)), logits(with_eps(model, 0)), rtol=0, atol=1e-12)
    assert set(tied_names(folded.state_dict())) == {"decoder.embed_tokens.weight", "decoder.output_projection.weight"}


REFUSED = {
    "2rskip+ln": "norm₂(x + norm₁(x + f))", "sas": "αx + βf", "highway": "(1-T)", "prenorm+rms": "x + F(norm(x))",
    "hyper": "R_jk", "b2t": "the layer's input", "normformer": "scales each head",
    "hybridnorm": "queries, keys and values",
}  # fmt: skip


def test_other_functions_are_refused_with_the_reason():
    for connection, formula in REFUSED.items():
        with pytest.raises(ValueError) as error:
            fold_connections(build("1xskip+ln", connection))
        message = str(error.value)
        assert message.startswith(f"{connection} (") and formula in message and "can't be folded" in message
    with pytest.raises(ValueError, match="no value_residual fixed"):
        fold_connections(build("1xskip+ln", "1xskip+ln", value_residual="fixed"))


@pytest.mark.parametrize("setting", [{"output_bias": True}, {"start": "begin"}])
def test_an_output_bias_or_another_start_is_refused(setting):
    model = build("1xskip+ln", "1xskip+ln", **setting)
    with pytest.raises(ValueError, match="fairseq's own transformer has no .*; use `rskip translate` or "):
        stock_checkpoint(model, source_language="a", target_language="b")
