"""Decoding by the compiled kernels gives what the model's own decoding gives."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from rskip.cpu import CpuTransformer, find_library, for_inference, linear, program, set_precision
from rskip.cpu.state import CpuState
from rskip.cpu.structures import address, constants, linear_work

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")


def assert_equal_decoding(model, source, *, beams, steps, leaving=(), tolerance=1e-5):
    """Both decode the same drawn tokens, reordered at every step; after the steps `leaving` a sentence leaves."""
    torch.manual_seed(3)
    decoders = (model.model.decoder, model)
    with torch.inference_mode():
        memory, native = model.model.encode(source), model.encode(source)
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


def test_every_connection(build, connection, source):
    """For three sentences, then two, then one."""
    model = for_inference(build(connection), "float32")
    assert_equal_decoding(model, source, beams=4, steps=7, leaving=(2, 4))


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"layernorm_embedding": True, "no_scale_embedding": True},
        {"activation_fn": "gelu"},
        {"activation_fn": "swish"},
        {"output_bias": True, "share_decoder_input_output_embed": True},
        {"encoder_embed_dim": 8, "encoder_attention_heads": 2, "decoder_embed_dim": 18, "decoder_attention_heads": 3},
    ],
    ids=str,
)
def test_every_shape(build, source, changes):
    model = for_inference(build("2rskip+ln", **changes), "float32")
    for sentences in (1, 3):
        assert_equal_decoding(model, source[:sentences], beams=3, steps=4)


def test_a_sentence_of_padding_alone_attends_to_nothing(build):
    model, first = for_inference(build("2rskip+ln"), "float32"), torch.full((2, 1), 2)
    with torch.inference_mode():
        memory = model.encode(torch.tensor([[4, 5, 2], [1, 1, 1]]))
        logits = [each.step(first, each.start(memory)) for each in (model.model, model)]
    torch.testing.assert_close(*logits)


def test_nothing_is_decoded_of_nothing(build):
    """No sentences, no source, no prefix: as without native code, and no error."""
    model = for_inference(build("2rskip+ln"), "float32")
    for shape in ((0, 4), (3, 0)):
        tokens = torch.full(shape, 5)
        torch.testing.assert_close(model.encode(tokens).states, model.model.encode(tokens).states)
        assert model.model(torch.full((shape[0], 4), 5), tokens).shape[:2] == shape
    memory = model.encode(torch.full((0, 4), 5))
    first = torch.full((0, 1), 2)
    logits = [each.step(first, each.start(memory)) for each in (model.model, model)]
    torch.testing.assert_close(*logits)


@pytest.mark.parametrize("sentences", [1, 3])
def test_a_target_that_outgrows_its_slots(build, source, sentences):
    """Whether beams stay apart, so that each needs slots of its own, or not, and beyond the known positions."""
    model = for_inference(build(max_target_positions=20), "float32")
    assert_equal_decoding(model, source[:sentences], beams=5, steps=90)
    state = model.start(model.encode(source))
    apart = torch.arange(5).expand(3, 5)
    for _ in range(40):
        model.step(torch.full((3, 5 if state.length else 1), 4), state)
        model.reorder(state, apart if state.length > 1 else torch.zeros(3, 5, dtype=torch.long))
    assert [len(set(row)) for row in state.slots[:, :, 1 : state.length].flatten(1).tolist()] == [5 * 39] * 3


@pytest.mark.parametrize("precision", [None, "float32"])
def test_decoding_within_autocast(build, source, precision):
    model = for_inference(build("2rskip+ln").float(), precision)
    with torch.autocast("cpu", torch.bfloat16):
        assert_equal_decoding(model, source, beams=2, steps=3, tolerance=0.03)


def test_a_default_type_other_than_float32(build, source):
    model = for_inference(build(), "float32")
    try:
        torch.set_default_dtype(torch.bfloat16)
        assert_equal_decoding(model, source, beams=2, steps=3)
    finally:
        torch.set_default_dtype(torch.float32)


@torch.inference_mode()
def test_greedy_decoding_never_reorders(build, source):
    model = for_inference(build(), "float32")
    memory, tokens = model.encode(source), torch.full((3, 1), 4)
    native, expected = model.start(memory), model.model.decoder.start(memory)
    for _ in range(70):
        logits = model.model.decoder.step(tokens, expected)
        torch.testing.assert_close(model.step(tokens, native), logits, rtol=0, atol=1e-5 * logits.abs().max().item())
    assert native.slots[:, 0, :70].tolist() == [[*range(70)]] * 3


def test_models_that_the_kernels_dont_suit(build, source):
    changes = (lambda model: model, lambda model: model.float().train(), lambda model: model.float())
    for suits, change in zip((False, False, True), changes, strict=True):  # in float64, in training
        model = for_inference(change(build()))
        state = model.start(model.encode(source))
        assert isinstance(state, CpuState) == suits
        model.step(torch.full((3, 1), 2), state)
        model.reorder(state, torch.zeros(3, 4, dtype=torch.long))
        assert model.step(torch.full((3, 4), 2), state).shape == (3, 4, 29)


@torch.no_grad()
def test_a_model_that_is_left_as_it_is_decodes_by_its_latest_parameters(build, source):
    """As in training, whose optimiser changes them in place."""
    model = for_inference(build("2rskip+ln").float())
    assert isinstance(model, CpuTransformer)
    for _ in range(2):
        assert_equal_decoding(model, source, beams=2, steps=3)
        for parameter in model.model.parameters():
            parameter.data.mul_(1.1)


@pytest.mark.parametrize("change", ["loaded", "replaced", "converted"])
def test_a_model_that_has_changed_since_it_decoded(build, source, change):
    """What was kept of the model as it was isn't used any more."""
    model, other = for_inference(build(), "float32"), build().float()
    torch.nn.init.normal_(other.decoder.layers[0].fc1.weight)
    assert_equal_decoding(model, source, beams=2, steps=3)
    if change == "loaded":
        model.model.load_state_dict(other.state_dict())
    elif change == "replaced":
        model.model.decoder.layers[0].fc1 = other.decoder.layers[0].fc1
    else:
        set_precision(model.model, "bfloat16")
    assert_equal_decoding(model, source, beams=2, steps=3, tolerance=0.05)
    assert_equal_decoding(copy.deepcopy(model), source, beams=2, steps=3, tolerance=0.05)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ([[4, 23]], IndexError, "tokens include 23: expected 0 to 22"),
        ([[-1, 4]], IndexError, "tokens include -1"),
        ([[4.0, 5.0]], TypeError, "tokens are torch.float32 on cpu: expected integers"),
        ([[True, False]], TypeError, "tokens are torch.bool"),
    ],
)
def test_tokens_that_are_not_in_the_vocabulary_are_refused(build, tokens, error, message):
    model = for_inference(build(target_vocabulary=23), "float32")
    with torch.inference_mode(), pytest.raises(error, match=message):
        model.encode(torch.tensor(tokens))
    state = model.start(model.encode(torch.tensor([[4]])))
    with pytest.raises(error, match=message):
        model.step(torch.tensor(tokens)[:, 1 if error is IndexError and tokens[0][0] == 4 else 0, None], state)


@torch.inference_mode()
def test_a_reordering_that_is_not_the_states_is_refused(build, source):
    model = for_inference(build(), "float32")
    state = model.start(model.encode(source))
    model.step(torch.full((3, 1), 2), state)
    for parents, sentences, error in (
        ([[1], [0], [0]], None, IndexError), ([[0]], [3], IndexError), ([[0]], [-1], IndexError),
        ([[0]], None, AssertionError),
    ):  # fmt: skip
        with pytest.raises(error):
            model.reorder(state, torch.tensor(parents), None if sentences is None else torch.tensor(sentences))


@torch.inference_mode()
def test_positions_that_another_thread_replaces_during_a_run_are_still_read(build, source, monkeypatch):
    """The position table stays alive until the kernels that read it return."""
    model, tables = for_inference(build(), "float32"), []
    expected = copy.deepcopy(model).encode(source).states
    embedding = model.model.encoder.embed_positions
    library = find_library().library
    run = library.run

    def run_while_the_table_grows(*arguments, **options):
        if all(each.kernel != constants.EMBED for each in arguments[0].copied):
            return run(*arguments, **options)
        tables.append(weakref.ref(embedding.table))
        embedding.grow(2 * embedding.table.size(0))
        gc.collect()
        assert tables[-1]() is not None
        return run(*arguments, **options)

    monkeypatch.setattr(library, "run", run_while_the_table_grows)
    assert torch.equal(model.encode(source).states, expected)
    state = model.start(model.encode(source))
    embedding = model.model.decoder.embed_positions
    model.step(torch.full((3, 1), 2), state)
    assert len(tables) == 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_threads_that_use_a_fresh_model_at_once_read_the_same_weights(build, source, precision, monkeypatch):
    """Neither thread finds a packed weight, so both pack it. Afterwards the kernels read only one of the two."""
    try:
        model = for_inference(build("2rskip+ln", encoder_ffn_embed_dim=64), precision)
    except ValueError:
        pytest.skip("this processor has no exact 8-bit products")
    encode, both, read = torch.inference_mode()(model.encode), threading.Barrier(2, timeout=60), []
    expected = torch.inference_mode()(copy.deepcopy(model).encode)(source).states

    def beside_the_other(pack, *arguments):
        both.wait()
        return pack(*arguments)

    def record(arguments):
        read.append(arguments.weight)
        return linear_work(arguments)

    for kind in (linear.PackedLinear, linear.Int8Linear):
        monkeypatch.setattr(kind, "_kind", partial(beside_the_other, kind._kind))
    monkeypatch.setattr(program, "linear_work", record)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(encode, [source, source]))
    assert all(torch.equal(memory.states, expected) for memory in found)
    modules = model.model.encoder.modules()
    packed = [each.packed["native"] for each in modules if "native" in getattr(each, "packed", {})]
    kept = [address(each.weight) for each in packed]
    assert len(kept) == 12 and sorted(read) == sorted(2 * kept)
