"""The compiled search finds what the reference does, with the loop in C and with a decoder's steps in Python."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from rskip.cpu import CpuTransformer, find_library, for_inference
from rskip.generation import SearchOptions, SpecialTokens, beam_search
from rskip.generation.compiled_steps import compiled_beam_search
from rskip.generation.search import Candidates
from rskip.transformer import Transformer, TransformerConfig
from tests.generation.conftest import assert_equal

pytestmark = pytest.mark.skipif(find_library().library is None, reason="the kernels are not compiled here")

PAD, END, WORDS, SOURCE_WORDS = 1, 2, 90, 40
MANY_WORDS = "int8, 5,000 words"  # so many that a step computes only some blocks of its logits again


def build(connection="2rskip+ln", precision="float32", **changes):
    """A small model whose probabilities are uneven enough that beams differ, grow and end at different lengths."""
    torch.manual_seed(1)
    sizes = {"embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4, "layers": 2, "connection": connection}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
    config = {"source_vocabulary": SOURCE_WORDS, "target_vocabulary": WORDS, **sides, **changes}
    model = Transformer(TransformerConfig(**config)).eval()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(3)
        model.decoder.output_projection.weight[END].mul_(1.5)
    return for_inference(model, precision)


@pytest.fixture(scope="module")
def models():
    models = {precision: build(precision=precision) for precision in ("float32", "bfloat16")}
    if find_library().library.largest_weight:
        models["int8"] = build(precision="int8")
        models[MANY_WORDS] = build(precision="int8", target_vocabulary=5000)
    return models


def drawn_settings(draw):
    """Settings of a search, with each of them often at its default."""

    def usually(default, *others):
        return default if draw.random() < 0.6 else draw.choice(others)

    beam = draw.choice([1, 2, 3, 4, 4, 5, 8, 40])
    options = SearchOptions(
        beam=beam,
        nbest=draw.randint(1, beam),
        length_penalty=usually(1.0, 0.0, 0.6, 1.7, -0.5),
        length_penalty_kind=draw.choice(["fairseq", "gnmt"]),
        min_length=usually(1, 0, 3, 6),
        max_length_a=usually(0.0, 0.5, 1.3),
        max_length_b=draw.choice([6, 12, 50]),
        unknown_penalty=usually(0.0, 0.75, -1.125, math.inf),
        temperature=usually(1.0, 0.4, 2.0),
        no_repeat_ngram=usually(0, 1, 2, 3),
        token_scores=True,
        attention=draw.random() < 0.7,
    )
    special = SpecialTokens(start=usually(None, 0))
    return options, special


def drawn_sources(draw):
    """Sources (B, S) padded on the right, and prefixes (B, P) padded on the right or None."""
    lengths = [draw.randint(1, 12) for _ in range(draw.choice([1, 1, 2, 5, 17]))]
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, :length] = torch.tensor([draw.randrange(4, SOURCE_WORDS) for _ in range(length - 1)] + [END])
    if draw.random() < 0.6:
        return source, None
    prefix = torch.full((len(lengths), draw.randint(1, 4)), PAD)
    for row in prefix:
        count = draw.randint(0, len(row))
        row[:count] = torch.tensor([draw.choice([3, END, 7, 8, 9, 30]) for _ in range(count)], dtype=torch.long)
    return source, prefix


def best_in_order(logits, offsets, count):
    """As `best`, but of equal totals the first, as in C."""
    scores, index = (logits + offsets[:, :, None]).flatten(1).sort(descending=True, stable=True)
    words = logits.size(2)
    return Candidates(scores[:, :count], index[:, :count] // words, index[:, :count] % words)


def searched(model, source, prefix, options, special, monkeypatch, *, compiled):
    with monkeypatch.context() as patched, torch.inference_mode():
        patched.setattr("rskip.generation.search.best", best_in_order)
        search, memory = compiled_beam_search if compiled else beam_search, model.encode(source)
        return search(model, memory, options, source_lengths=source.ne(PAD).sum(1), prefix=prefix, special=special)


@pytest.fixture
def same(monkeypatch):
    """Asserts that both searches find the same, and returns it."""

    def same(model, source, prefix, options, special=None, context=""):
        arguments = model, source, prefix, options, special or SpecialTokens(), monkeypatch
        found, expected = (searched(*arguments, compiled=compiled) for compiled in (True, False))
        assert_equal(found, expected, (context, options, special))
        return found

    return same


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8", MANY_WORDS])
def test_the_loop_in_c_equals_the_reference_with_random_settings(models, precision, same):
    if precision not in models:
        pytest.skip("this processor has no exact 8-bit products")
    lengths = set()
    for number in range(40):
        draw = random.Random(f"{precision} {number}")
        (options, special), (source, prefix) = drawn_settings(draw), drawn_sources(draw)
        if precision == "bfloat16" and options.unknown_penalty < math.inf:  # in C the logit is rounded after it
            options = replace(options, unknown_penalty=0.0)
        found = same(models[precision], source, prefix, options, special, number)
        lengths.update(len(each.tokens) for hypotheses in found for each in hypotheses)
    assert len(lengths) > 10


@pytest.mark.parametrize("connection", ["prenorm+rms", "normformer", "wskip+ln", "attnres:queries=3", "residual_dual"])
def test_connections_with_and_without_kernels(connection, same):
    model = build(connection)
    for number in range(4):
        draw = random.Random(f"{connection} {number}")
        (options, special), (source, prefix) = drawn_settings(draw), drawn_sources(draw)
        same(model, source, prefix, options, special, number)


def test_a_step_that_is_one_program_needs_no_python(models, monkeypatch):
    def refuse(*_):
        raise AssertionError("Python computed a step")

    monkeypatch.setattr(CpuTransformer, "step", refuse)
    monkeypatch.setattr(CpuTransformer, "reorder", refuse)
    source, options = torch.tensor([[5, 6, END]]), SearchOptions(max_length_b=9)
    assert searched(models["float32"], source, None, options, SpecialTokens(), monkeypatch, compiled=True)


@pytest.mark.parametrize("changes", [{"max_target_positions": 4}, {"decoder_learned_pos": True}], ids=str)
def test_targets_beyond_the_known_positions_and_slots(changes, same):
    """150 tokens need a larger table of positions, more slots, and longer lists of slots."""
    source = torch.tensor([[5, 6, 7, END], [8, 9, END, PAD], [10, END, PAD, PAD]])
    options = SearchOptions(beam=6, nbest=6, min_length=149, max_length_b=150, token_scores=True, attention=True)
    same(build(**changes), source, None, options)


@pytest.fixture
def three_threads(monkeypatch):
    """Work is shared among three threads, however little it is."""
    monkeypatch.setattr("rskip.cpu.decoding.WORK_TO_SHARE", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


def test_many_sentences_are_shared_among_threads(models, same, three_threads):
    source = torch.randint(4, SOURCE_WORDS, (13, 6), generator=torch.Generator().manual_seed(0))
    options = SearchOptions(nbest=4, no_repeat_ngram=2, max_length_b=20, token_scores=True, attention=True)
    same(models["float32"], source, None, options)


@pytest.mark.parametrize("settings", [{}, {"top_k": 20, "top_p": 0.9}], ids=str)
def test_samples_depend_on_the_seed_and_the_sentence_only(models, settings, monkeypatch, three_threads):
    """Neither the other sentences of a batch nor threads change them."""
    source = torch.randint(4, SOURCE_WORDS, (9, 6), generator=torch.Generator().manual_seed(0))
    options = SearchOptions(nbest=4, max_length_b=20, sampling=True, seed=2**63 - 1, token_scores=True, **settings)

    def samples(source):
        return searched(models["float32"], source, None, options, SpecialTokens(), monkeypatch, compiled=True)

    expected = samples(source)
    torch.set_num_threads(1)
    assert_equal(samples(source), expected)
    assert_equal(samples(source[:4]), expected[:4])


@pytest.mark.parametrize("part", ["embed_tokens.weight", "layers.1.fc1.bias", "output_projection.weight"])
def test_weights_that_are_not_numbers_give_one_error(part, monkeypatch):
    model = build()
    with torch.no_grad():
        model.model.decoder.get_parameter(part)[:] = math.nan
    source, options = torch.tensor([[5, 6, END]]), SearchOptions(max_length_b=9)
    with pytest.raises(ValueError, match="the model's output is not a number"):
        searched(model, source, None, options, SpecialTokens(), monkeypatch, compiled=True)


@pytest.mark.parametrize(
    ("prefix", "special"), [([[WORDS]], SpecialTokens()), ([[-1]], SpecialTokens()), (None, SpecialTokens(end=WORDS))]
)
def test_tokens_outside_of_the_vocabulary_are_refused(models, prefix, special, monkeypatch):
    source = torch.tensor([[5, 6, END]])
    prefix = None if prefix is None else torch.tensor(prefix)
    with pytest.raises(ValueError, match="is not in the vocabulary: expected 0 to 89"):
        searched(models["float32"], source, prefix, SearchOptions(), special, monkeypatch, compiled=True)
