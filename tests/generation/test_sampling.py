"""Samples follow the requested distribution, in PyTorch and in the compiled search."""

from __future__ import annotations

import math

import pytest
import torch

from rskip.cpu import find_library
from rskip.cpu.structures import TYPES, kind_of
from rskip.generation import SearchOptions, SpecialTokens
from rskip.generation.compiled import CompiledSearch
from rskip.generation.sampling import sample

END, A, B, C = 2, 4, 5, 6
PROBABILITIES = torch.tensor([0.02, 0.4, 0.03, 0.25, 0.1, 0.2])
ROWS = 40_000


def compiled_draws(logits, **settings):
    """Tokens (ROWS,) that the compiled search draws after logits (V,), from 40 sentences."""
    if find_library().library is None:
        pytest.skip("the kernels are not compiled here")
    count, words = 40, len(logits)
    options = SearchOptions(sampling=True, beam=ROWS // count, min_length=0, **settings)
    # padding and end are beyond the words that are drawn
    padded = torch.nn.functional.pad(logits.expand(count, 1, words).contiguous(), (0, 2), value=-math.inf)
    special = SpecialTokens(padding=words + 1, end=words, start=0)
    with CompiledSearch(
        find_library().library, options, limits=[5] * count, prefixes=None, special=special, words=words + 2, source=0
    ) as search:
        assert not search.step(padded.data_ptr(), TYPES[kind_of(padded)], None, threads=1)
        return torch.tensor(search.beams()[0]).flatten()


def draws(log_probabilities, **settings):
    """Tokens (ROWS,) that PyTorch draws after log-probabilities (V,)."""
    rows = log_probabilities.expand(2, ROWS // 2, -1)
    tokens, scores = sample(rows, SearchOptions(sampling=True, **settings), torch.Generator().manual_seed(1))
    assert torch.equal(scores, rows.gather(2, tokens[:, :, None]).squeeze(2))
    return tokens.flatten()


def assert_follows(tokens, expected):
    """Within 4.5 standard deviations of the share of ROWS draws; what has no probability is never drawn."""
    expected = torch.as_tensor(expected)
    shares, deviation = tokens.bincount(minlength=len(expected)) / ROWS, (expected * (1 - expected) / ROWS).sqrt()
    assert ((shares - expected).abs() <= 4.5 * deviation + 1e-9).all(), (shares, expected)


@pytest.mark.parametrize("drawn", [draws, lambda z, **settings: compiled_draws(z + 3, **settings)], ids=["torch", "C"])
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [1, 3, 5]),
        ({"top_k": 100}, [0, 1, 2, 3, 4, 5]),
        ({"top_p": 1e-9}, [1]),
        ({"top_p": 0.64}, [1, 3]),
        ({"top_p": 0.66}, [1, 3, 5]),
        ({"top_p": 0.96}, [1, 3, 5, 4, 2]),
        ({"top_k": 2, "top_p": 0.96}, [1, 3]),
    ],
    ids=str,
)
def test_frequencies(settings, kept, drawn):
    expected = torch.zeros(6)
    expected[kept] = PROBABILITIES[kept] / PROBABILITIES[kept].sum()
    assert_follows(drawn(PROBABILITIES.log(), **settings), expected)


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5}, {"top_k": 40}, {"top_p": 0.7}], ids=str)
def test_compiled_draws_from_several_blocks(type, settings, words=300):
    """Chi-square over many words; 5 standard deviations of its distribution."""
    logits = torch.randn(words, generator=torch.Generator().manual_seed(words)).to(getattr(torch, type))
    counts = compiled_draws(logits, **settings).bincount(minlength=words)
    probabilities = (logits.double() / settings.get("temperature", 1)).softmax(0)
    order = probabilities.argsort(descending=True, stable=True)
    before = probabilities[order].cumsum(0) - probabilities[order]
    kept = order[(before < settings.get("top_p", 1)) & (torch.arange(words) < settings.get("top_k", words))]
    expected = ROWS * probabilities[kept] / probabilities[kept].sum()
    assert counts.sum() == counts[kept].sum() == ROWS
    square = ((counts[kept] - expected) ** 2 / expected).sum()
    assert abs(square - (len(kept) - 1)) < 5 * math.sqrt(2 * (len(kept) - 1))


@pytest.mark.parametrize("settings", [{}, {"top_k": 2}, {"top_p": 0.9}], ids=str)
def test_improbable_and_impossible_tokens(settings):
    """exp(-200) is 0 in float32. A row where nothing is possible does not stop the others."""
    share = 1 / (1 + math.exp(-1))
    tokens = draws(torch.tensor([-math.inf, -200.0, -math.inf, -201.0]), **settings)
    assert_follows(tokens, [0, share, 0, 1 - share])
    rows = torch.tensor([[-math.inf] * 3, [math.nan] * 3, [-math.inf, 0.0, -math.inf]])
    tokens, scores = sample(rows[None], SearchOptions(sampling=True, **settings), torch.Generator().manual_seed(1))
    assert scores[0, 0] == -math.inf and scores[0, 1].isnan()
    assert (tokens[0, 2].item(), scores[0, 2].item()) == (1, 0.0)


WEATHER = {
    (): {A: 0.5, B: 0.3, C: 0.2},
    (A,): {END: 0.6, B: 0.4},
    (B,): {END: 0.1, C: 0.9},
    (C,): {A: 1.0},
    (B, C): {END: 0.25, A: 0.75},
}
STRINGS = {
    (A, END): 0.5 * 0.6, (A, B, END): 0.5 * 0.4, (B, END): 0.3 * 0.1, (B, C, END): 0.3 * 0.9 * 0.25,
    (B, C, A, END): 0.3 * 0.9 * 0.75, (C, A, END): 0.2,
}  # fmt: skip


def sampled(search, count, *tables, **settings):
    results = search(*tables or [WEATHER], sampling=True, beam=count, nbest=count, **settings)
    return [[tuple(each.tokens.tolist()) for each in hypotheses] for hypotheses in results]


def test_whole_hypotheses_follow_the_model(search):
    count = 1000
    for strings in sampled(search, count, WEATHER, WEATHER):
        for string, probability in STRINGS.items():
            deviation = math.sqrt(probability * (1 - probability) / count)
            assert abs(strings.count(string) / count - probability) < 4.5 * deviation
    assert set(sampled(search, 300, top_k=1)[0]) == {(A, END)}
    assert set(sampled(search, 300, top_k=2)[0]) == set(STRINGS) - {(C, A, END)}
    assert set(sampled(search, 300, top_p=0.7)[0]) == {(A, END), (A, B, END), (B, C, A, END)}
    assert sampled(search, 40, seed=5) == sampled(search, 40, seed=5) != sampled(search, 40, seed=6)


def test_scores_of_samples_are_the_models(search):
    for hypothesis in search(WEATHER, sampling=True, beam=60, nbest=60, top_k=2, token_scores=True)[0]:
        tokens = tuple(hypothesis.tokens.tolist())
        assert hypothesis.score == pytest.approx(math.log(STRINGS[tokens]) / len(tokens), abs=1e-5)
        steps = [math.log(WEATHER.get(tokens[:place], {END: 1})[token]) for place, token in enumerate(tokens)]
        torch.testing.assert_close(hypothesis.token_scores, torch.tensor(steps), rtol=0, atol=1e-5)


def test_prefix_and_lengths_hold_in_sampling(search):
    tables = [lambda prefix: {A: 0.4, B: 0.3, END: 0.3}] * 2
    found = sampled(search, 30, *tables, prefix=[[B, B, B], [A, 1, 1]], min_length=2, max_length_b=4)
    assert {each[:3] for each in found[0]} == {(B, B, B)} and {each[0] for each in found[1]} == {A}
    assert [{len(each) - 1 for each in strings} for strings in found] == [{3, 4}, {2, 3, 4}]
