"""Decoding by the compiled kernels gives what the model's own decoding gives."""

from __future__ import annotations

import copy

import pytest
import torch

from rskip.native import find_library
from rskip.transformer.native_decoder import NativeState
from rskip.transformer.precision import set_precision

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


def assert_equal_decoding(model, source, *, beams, steps, leaving=(), tolerance=1e-5):
    """Both decode the same drawn tokens, reordered at every step; after the steps `leaving` a sentence leaves."""
    torch.manual_seed(3)
    decoders = (model.decoder, model)
    with torch.inference_mode():
        memory, native = model.encoder.encode(source), model.encode(source)
        seen = ~memory.padding
        torch.testing.assert_close(
            native.states[seen], memory.states[seen], rtol=0, atol=tolerance * memory.states[seen].abs().max().item()
        )
        states = [each.start(memory, attention=True) for each in decoders]
        tokens = torch.full((len(source), 1), 2)
        for step in range(steps):
            expected, found = (each.step(tokens, state) for each, state in zip(decoders, states, strict=True))
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())
            attention = [state.attention.float() for state in states]
            torch.testing.assert_close(*attention, rtol=0, atol=tolerance)
            count, width = tokens.shape
            staying = torch.tensor([count - 1, *range(count - 2)]) if step in leaving else None
            parents = torch.randint(0, width, (count if staying is None else count - 1, beams))
            for state in states:
                state.reorder(parents, staying)
            tokens = torch.randint(4, 23, parents.shape)


@pytest.mark.parametrize("sentences", [1, 3])
def test_every_connection(build, connection, source, sentences):
    model = set_precision(build(connection), "float32")
    assert_equal_decoding(model, source[-sentences:], beams=4, steps=8, leaving=(2, 4)[: sentences - 1])


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"layernorm_embedding": True, "no_scale_embedding": True},
        {"activation_fn": "gelu"},
        {"encoder_embed_dim": 8, "encoder_attention_heads": 2, "decoder_embed_dim": 18, "decoder_attention_heads": 3},
    ],
    ids=str,
)
def test_every_shape(build, source, changes):
    model = set_precision(build("2rskip+ln", **changes), "float32")
    for sentences in (1, 3):
        assert_equal_decoding(model, source[:sentences], beams=3, steps=4)


def test_nothing_is_decoded_of_nothing(build):
    """No sentences, no source, no prefix: as without native code, and no error."""
    model = set_precision(build("2rskip+ln"), "float32")
    for shape in ((0, 4), (3, 0)):
        tokens = torch.full(shape, 5)
        torch.testing.assert_close(model.encode(tokens).states, model.encoder.encode(tokens).states)
        assert model(torch.full((shape[0], 4), 5), tokens).shape[:2] == shape
    memory = model.encode(torch.full((0, 4), 5))
    first = torch.full((0, 1), 2)
    logits = [each.step(first, each.start(memory)) for each in (model.decoder, model)]
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize("sentences", [1, 3])
def test_a_target_that_outgrows_its_slots(build, source, sentences):
    """Whether beams stay apart, so that each needs slots of its own, or not, and beyond the known positions."""
    model = set_precision(build(max_target_positions=20), "float32")
    assert_equal_decoding(model, source[:sentences], beams=5, steps=90)
    state = model.start(model.encode(source))
    apart = torch.arange(5).expand(3, 5)
    for _ in range(40):
        model.step(torch.full((3, 5 if state.length else 1), 4), state)
        model.reorder(state, apart if state.length > 1 else torch.zeros(3, 5, dtype=torch.long))
    assert [len(set(row)) for row in state.slots[:, :, 1 : state.length].flatten(1).tolist()] == [5 * 39] * 3


def test_bfloat16_and_int8(build, source):
    assert_equal_decoding(set_precision(build("2rskip+ln"), "bfloat16"), source, beams=2, steps=3, tolerance=0.05)
    model = build("2rskip+ln")
    try:
        set_precision(model, "int8")
    except ValueError:
        pytest.skip("this processor has no exact 8-bit products")
    assert_equal_decoding(model, source, beams=2, steps=3, tolerance=0.05)


def test_models_that_the_kernels_dont_suit(build, source):
    changes = (lambda model: model, lambda model: model.float().train(), lambda model: model.float())
    for suits, change in zip((False, False, True), changes, strict=True):  # in float64, in training
        model = change(build())
        assert isinstance(model.start(model.encode(source)), NativeState) == suits


@pytest.mark.parametrize("change", ["loaded", "replaced", "converted"])
def test_a_model_that_has_changed_since_it_decoded(build, source, change):
    """What was kept of the model as it was isn't used any more."""
    model, other = set_precision(build(), "float32"), build().float()
    torch.nn.init.normal_(other.decoder.layers[0].fc1.weight)
    assert_equal_decoding(model, source, beams=2, steps=3)
    if change == "loaded":
        model.load_state_dict(other.state_dict())
    elif change == "replaced":
        model.decoder.layers[0].fc1 = other.decoder.layers[0].fc1
    else:
        set_precision(model, "bfloat16")
    assert_equal_decoding(model, source, beams=2, steps=3, tolerance=0.05)
    assert_equal_decoding(copy.deepcopy(model), source, beams=2, steps=3, tolerance=0.05)
