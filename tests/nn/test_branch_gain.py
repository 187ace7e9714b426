"""`scale_branch`: what it scales, what it refuses, and the warning of a training that starts without it."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from rskip.nn import Residual, Residuals, adapt

GAIN = 16**-0.25  # DeepNet's Table 1, one stack of two layers


@pytest.fixture
def residuals() -> Residuals:
    torch.manual_seed(0)
    return Residuals("deepnorm", 8, layers=2, host_supplies="branch_gain")


def scaled(residual: Residual, weight: torch.Tensor, scale: Callable[[], None]) -> torch.Tensor:
    """The factor that `scale` has given each row of the weight."""
    before = weight.detach().clone()
    scale()
    return (weight.detach() / before).mean(1)


def test_of_an_attention_the_values_and_the_output_map_are_scaled(residuals):
    residual = residuals[0].attention
    joint, parted = nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, kdim=6, vdim=4)
    for attention, weight, rows in ((joint, joint.in_proj_weight, 16), (parted, parted.v_proj_weight, 0)):
        out, query = attention.out_proj.weight.detach().clone(), getattr(attention, "q_proj_weight", None)
        query = None if query is None else query.detach().clone()
        factors = scaled(residual, weight, lambda attention=attention: residual.scale_branch(attention))
        torch.testing.assert_close(factors, torch.cat([torch.ones(rows), torch.full((8,), GAIN)]))
        torch.testing.assert_close(attention.out_proj.weight, out * GAIN)
        assert query is None or torch.equal(attention.q_proj_weight, query)


def test_a_map_with_the_inputs_first_has_its_values_in_columns(residuals):
    """As in GPT-2."""
    weight = nn.Parameter(torch.randn(8, 24))
    before = weight.detach().clone()
    residuals[0].attention.scale_branch(weight[:, 16:])
    assert torch.equal(weight[:, :16], before[:, :16])
    torch.testing.assert_close(weight[:, 16:], before[:, 16:] * GAIN)


def test_what_the_model_does_not_store_is_refused_because_scaling_it_would_change_nothing(residuals):
    """Query, key and value of each head side by side, as in GPT-NeoX, have no view of all values."""
    weight = nn.Linear(8, 24).weight
    heads = weight.view(2, 3, 4, 8)
    for copied in (heads[:, 2].reshape(8, 8), weight[[16, 17]], weight.clone(), (weight * 1)[16:]):
        with pytest.raises(ValueError, match="a copy of a weight"):
            residuals[0].attention.scale_branch(copied)
    before = weight.detach().clone()
    residuals[0].attention.scale_branch(heads[:, 2])
    factors = (weight.detach() / before).view(2, 3, 4, 8).mean((0, 2, 3))
    torch.testing.assert_close(factors, torch.tensor([1, 1, GAIN]))
    with pytest.raises(AttributeError, match="weight"):
        residuals[0].ffn.scale_branch(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)))
    for nothing in ((), (weight[24:],)):
        with pytest.raises(ValueError, match="no weights"):
            residuals[0].ffn.scale_branch(*nothing)


def test_after_a_loaded_state_nothing_is_scaled(residuals):
    loaded, linear = Residuals("deepnorm", 8, layers=2, host_supplies="branch_gain"), nn.Linear(8, 8)
    loaded.load_state_dict(residuals.state_dict())
    with pytest.raises(ValueError, match="after a state was loaded, which contains scaled weights: leave"):
        loaded[0].ffn.scale_branch(linear)
    loaded.reset_parameters()
    before = linear.weight.detach().clone()
    loaded[0].ffn.scale_branch(linear)
    torch.testing.assert_close(linear.weight, before * GAIN)


def train(residuals: Residuals) -> list[str]:
    """The warnings of a training step."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        s = residuals.train().enter(torch.randn(2, 8))
        for layer in residuals:
            s = layer.ffn(layer.attention(s, torch.tanh), torch.tanh)
        residuals.leave(s).sum().backward()
    return [str(each.message) for each in told]


def scale(residuals: Any) -> None:
    for layer in residuals:
        layer.attention.scale_branch(torch.ones(2, 2))
        layer.ffn.scale_branch(torch.ones(2, 2))


@pytest.mark.parametrize("spec", ["deepnorm", "subln"])
def test_a_training_that_starts_with_unscaled_weights_warns_once(spec):
    def stack() -> Residuals:
        return Residuals(spec, 8, layers=2, host_supplies=["branch_gain", "inner_norms"])

    unscaled, ready, loaded, half = stack(), stack(), stack(), stack()
    with torch.no_grad():
        unscaled.train()[0].ffn(torch.ones(2, 8), torch.tanh)
    copies = copy.deepcopy(unscaled), pickle.loads(pickle.dumps(unscaled))
    for each in (unscaled, *copies):
        assert [text.partition(", although")[0] for text in train(each)] == [
            "training starts with initial weights that were not scaled"
        ]
        assert train(each) == []
    scale(ready)
    loaded.load_state_dict(unscaled.state_dict())
    assert train(ready) == train(loaded) == train(Residuals("2rskip+ln", 8, layers=2)) == []
    for layer in half:
        layer.ffn.scale_branch(torch.ones(2, 2))
    assert len(train(half)) == 1
    assert not any(each._forward_pre_hooks for each in (*unscaled.modules(), *ready.modules(), *loaded.modules()))


def test_a_loaded_folder_of_transformers_needs_no_scaling(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is an optional library")
    from rskip.nn import from_pretrained

    config = transformers.GPT2Config(vocab_size=11, n_layer=1, n_head=2, n_embd=8, bos_token_id=0, eos_token_id=0)
    adapt(transformers.GPT2LMHeadModel(config), "deepnorm", host_supplies="branch_gain").save_pretrained(tmp_path)
    model = from_pretrained(transformers.AutoModelForCausalLM, tmp_path).train()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="training starts")
        model(torch.ones(1, 3, dtype=torch.int64)).logits.sum().backward()
    (block,) = model.transformer.h
    with pytest.raises(ValueError, match="after a state was loaded"):
        block.residuals.ffn.scale_branch(block.mlp.c_fc)


def test_after_a_loaded_state_blocks_that_kept_their_norms_are_not_scaled():
    def build() -> nn.TransformerEncoder:
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        return adapt(nn.TransformerEncoder(layer, 2), "deepnorm", host_supplies="branch_gain")

    model, state = build(), build().state_dict()
    assert not any(".residuals." in name for name in state)
    model.load_state_dict({name: each for name, each in state.items() if name.startswith("layers.1.")}, strict=False)
    model.layers[0].residuals.attention.scale_branch(model.layers[0].self_attn)
    with pytest.raises(ValueError, match="after a state was loaded"):
        model.layers[1].residuals.attention.scale_branch(model.layers[1].self_attn)
