"""Decoding token by token gives what decoding at once gives."""

from __future__ import annotations

import pytest
import torch

from rskip.transformer import Transformer


def stepwise(model, prefix, state):
    return torch.cat([model.step(tokens[:, None], state) for tokens in prefix.T], dim=1)


def test_every_connection(build, connection, source, prefix):
    model = build(connection)
    full = model(source, prefix)
    steps = stepwise(model, prefix, model.start(model.encode(source)))
    torch.testing.assert_close(steps, full, rtol=0, atol=1e-9 * full.abs().max().item())


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"layernorm_embedding": True, "no_scale_embedding": True},
        {"decoder_layers": 3, "encoder_embed_dim": 8, "encoder_attention_heads": 2},
        {"target_vocabulary": 23, "share_all_embeddings": True},
        {"output_bias": True},
    ],
    ids=str,
)
def test_every_shape(build, source, prefix, changes):
    model = build("2rskip+ln", **changes)
    prefix = prefix.clamp(max=22)
    full = model(source, prefix)
    torch.testing.assert_close(stepwise(model, prefix, model.start(model.encode(source))), full, rtol=0, atol=1e-10)


def test_reordered_state_continues_the_named_rows(build, source, prefix):
    model = build("2rskip+ln")
    order = torch.tensor([2, 0, 0])
    state = model.start(model.encode(source))
    stepwise(model, prefix[:, :3], state)
    model.reorder(state, torch.zeros(3, 1, dtype=torch.int64), order)
    continued = stepwise(model, prefix[order, 3:], state)
    torch.testing.assert_close(continued, model(source, prefix)[order, 3:], rtol=0, atol=1e-10)


def test_positions_grow_beyond_the_configured_length(build, source):
    model = build(max_source_positions=4, max_target_positions=4)
    longer = build()
    longer.load_state_dict(model.state_dict())
    prefix = torch.randint(4, 29, (3, 40))
    torch.testing.assert_close(model(source, prefix), longer(source, prefix), rtol=0, atol=1e-12)
    steps = stepwise(model, prefix, model.start(model.encode(source)))
    torch.testing.assert_close(steps, model(source, prefix), rtol=0, atol=1e-10)


def test_built_on_the_meta_device_it_takes_a_state_without_being_reset(build, source, prefix):
    model = build()
    with torch.device("meta"):
        assigned, filled = (Transformer(model.config).double().eval() for _ in range(2))
    filled.to_empty(device="cpu")
    for each, assign in ((assigned, True), (filled, False)):
        each.load_state_dict(model.state_dict(), assign=assign)
        torch.testing.assert_close(each(source, prefix), model(source, prefix), rtol=0, atol=1e-12)


def test_learned_positions_refuse_a_longer_sentence(build, source, prefix):
    model = build(decoder_learned_pos=True, max_target_positions=5)
    with pytest.raises(ValueError, match="sentence has 6 tokens, but this model has only 5 learned positions"):
        model(source, prefix)
    shorter = prefix.clone()
    shorter[:, 5:] = model.config.padding_index
    assert model(source, shorter).isfinite().all()


@pytest.mark.parametrize("dropout", ["dropout", "attention_dropout", "activation_dropout"])
@torch.no_grad()
def test_a_step_in_training_mode_drops_out_what_full_decoding_does(build, source, prefix, dropout):
    model = build("2rskip+ln", **{dropout: 0.5}).train()
    memory = model.encoder.encode(source)
    state = model.start(memory)
    torch.manual_seed(4)
    full = model.decode(prefix[:, :1], memory)
    torch.manual_seed(4)
    torch.testing.assert_close(model.step(prefix[:, :1], state), full, rtol=0, atol=1e-10)
