"""Limits of a search: lengths, forced and forbidden tokens, temperature."""

from __future__ import annotations

import math

import pytest
import torch

END, UNKNOWN, A, B, C = 2, 3, 4, 5, 6
PAD = 1


def always(**probabilities):
    """The same distribution after every prefix."""
    names = {"end": END, "unknown": UNKNOWN, "a": A, "b": B, "c": C, "pad": PAD}
    distribution = {names[name]: probability for name, probability in probabilities.items()}
    return lambda prefix: distribution


def test_min_length_keeps_the_end_back(search, expect):
    soon = always(end=0.7, a=0.2, b=0.1)
    expect(search(soon, beam=1, min_length=0)[0], ((END,), 0.7, 1))
    expect(search(soon, beam=1)[0], ((A, END), 0.2 * 0.7, 2))
    expect(search(soon, beam=1, min_length=3)[0], ((A, A, A, END), 0.2**3 * 0.7, 4))


def test_max_length_forces_the_end(search, expect):
    never = always(a=0.8, b=0.19, end=0.01)
    hypotheses = search(never, beam=1, max_length_b=3)[0]
    expect(hypotheses, ((A, A, A, END), 0.8**3 * 0.01, 4))


@pytest.mark.parametrize(
    ("a", "b", "lengths"), [(0, 4, [4, 4, 4]), (1, 0, [2, 5, 9]), (1, 2, [4, 7, 11]), (0.5, 1, [2, 3, 5])]
)
def test_max_length_is_relative_to_each_sentences_own_source(search, a, b, lengths):
    never = always(a=0.9, b=0.09, end=0.01)
    settings = {"max_length_a": a, "max_length_b": b}
    results = search(never, never, never, source_lengths=[2, 5, 9], beam=2, nbest=2, **settings)
    assert [[len(each.tokens) - 1 for each in hypotheses] for hypotheses in results] == [[each] * 2 for each in lengths]


def test_max_length_is_at_most_what_the_decoder_can(search, table_decoder, expect):
    decoder = table_decoder(always(a=0.9, end=0.1), max_positions=5)
    expect(search(decoder, beam=1)[0], ((A, A, A, A, END), 0.9**4 * 0.1, 5))


def test_max_length_wins_over_min_length(search, expect):
    never = always(a=0.9, end=0.1)
    settings = {"min_length": 6, "max_length_a": 1, "max_length_b": 1}
    expect(search(never, source_lengths=[2], beam=1, **settings)[0], ((A, A, A, END), 0.9**3 * 0.1, 4))


@pytest.mark.parametrize("penalty", [0.5, 2.0, -1.0])
def test_unknown_penalty_is_taken_from_the_log_probability(search, expect, penalty):
    probabilities = {(): {UNKNOWN: 0.6, A: 0.4}}
    expected = [((UNKNOWN, END), 0.6 * math.exp(-penalty), 2), ((A, END), 0.4, 2)]
    if penalty > math.log(0.6 / 0.4):
        expected.reverse()
    expect(search(probabilities, beam=2, nbest=2, unknown_penalty=penalty)[0], *expected)


def test_infinite_unknown_penalty_forbids_it(search):
    table = always(unknown=0.9, a=0.06, end=0.04)
    for hypothesis in search(table, beam=4, nbest=4, unknown_penalty=math.inf, max_length_b=4)[0]:
        assert UNKNOWN not in hypothesis.tokens.tolist()
        assert math.isfinite(hypothesis.score)


def test_padding_is_never_said(search, expect):
    expect(search(always(pad=0.9, a=0.06, end=0.04), beam=1, max_length_b=2)[0], ((A, A, END), 0.06**2 * 0.04, 3))


@pytest.mark.parametrize("temperature", [0.5, 1, 2, 10])
def test_temperature_divides_the_logits(search, expect, temperature):
    def cooled(distribution):
        powers = {token: probability ** (1 / temperature) for token, probability in distribution.items()}
        return {token: power / sum(powers.values()) for token, power in powers.items()}

    probabilities = {(): {A: 0.7, B: 0.2, C: 0.1}, (A,): {END: 0.9, A: 0.1}, (B,): {END: 0.95, A: 0.05}}
    first, after_a, after_b = (cooled(each) for each in probabilities.values())
    hypotheses = search(probabilities, beam=2, nbest=2, temperature=temperature)[0]
    expect(hypotheses, ((A, END), first[A] * after_a[END], 2), ((B, END), first[B] * after_b[END], 2))


def test_no_repeat_ngram(search, expect):
    loop = {  # A B A B ... for ever
        (): {A: 0.9, B: 0.1},
        (A,): {B: 0.8, C: 0.1, END: 0.1},
        (A, B): {A: 0.8, C: 0.15, END: 0.05},
        (A, B, A): {B: 0.9, C: 0.06, END: 0.04},
        (A, B, A, B): {A: 0.9, C: 0.06, END: 0.04},
        (A, B, C): {END: 0.5, A: 0.3, B: 0.2},
        (A, B, A, C): {END: 0.6, A: 0.4},
    }
    long = {"beam": 1, "max_length_b": 4}
    expect(search(loop, **long)[0], ((A, B, A, B, END), 0.9 * 0.8 * 0.8 * 0.9 * 0.04, 5))
    expect(search(loop, no_repeat_ngram=3, **long)[0], ((A, B, A, B, END), 0.9 * 0.8 * 0.8 * 0.9 * 0.04, 5))
    expect(search(loop, no_repeat_ngram=2, **long)[0], ((A, B, A, C, END), 0.9 * 0.8 * 0.8 * 0.06 * 0.6, 5))
    expect(search(loop, no_repeat_ngram=1, **long)[0], ((A, B, C, END), 0.9 * 0.8 * 0.15 * 0.5, 4))


def test_prefix_is_forced_and_counts_in_the_score(search, expect):
    table = {
        (): {A: 0.9, B: 0.1},
        (B,): {A: 0.7, C: 0.2, END: 0.1},
        (B, C): {END: 0.6, A: 0.3, B: 0.1},
        (B, C, A): {END: 0.8, A: 0.2},
    }
    expect(
        search(table, prefix=[[B, C]], beam=2, nbest=2)[0],
        ((B, C, A, END), 0.1 * 0.2 * 0.3 * 0.8, 4),
        ((B, C, END), 0.1 * 0.2 * 0.6, 3),
    )


def test_prefixes_of_different_lengths(search, expect):
    table = always(a=0.6, b=0.1, c=0.1, end=0.2)
    results = search(table, table, table, prefix=[[B, C, B], [C, PAD, PAD], [PAD] * 3], beam=1, max_length_b=4)
    expect(results[0], ((B, C, B, A, END), 0.1**3 * 0.6 * 0.2, 5))
    expect(results[1], ((C, A, A, A, END), 0.1 * 0.6**3 * 0.2, 5))
    expect(results[2], ((A, A, A, A, END), 0.6**4 * 0.2, 5))


def test_prefix_may_repeat_itself(search, expect):
    table = always(a=0.6, b=0.2, unknown=0.1, end=0.1)
    settings = {"beam": 1, "no_repeat_ngram": 2, "unknown_penalty": 1.0, "max_length_b": 5}
    tokens = (B, B, B, UNKNOWN, A, END)
    probability = 0.2**3 * (0.1 * math.exp(-1)) * 0.6 * 0.1
    expect(search(table, prefix=[tokens[:4]], **settings)[0], (tokens, probability, 6))


def test_prefix_longer_than_the_greatest_length_is_cut(search, expect):
    table = always(a=0.6, b=0.3, end=0.1)
    expect(search(table, prefix=[[B, B, B, B]], beam=2, max_length_b=2)[0], ((B, B, END), 0.3**2 * 0.1, 3))


@pytest.mark.parametrize("sampling", [False, True])
def test_dead_end_is_given_back_as_impossible(search, sampling):
    """Where nothing may follow, what there is comes back, with a score of -inf."""
    only_a = always(a=1.0)
    settings = {"beam": 2, "no_repeat_ngram": 1, "max_length_b": 9, "sampling": sampling}
    hypothesis = search(only_a, token_scores=True, **settings)[0][0]
    assert hypothesis.tokens.tolist() == [A, END]
    assert hypothesis.score == -math.inf
    assert torch.equal(hypothesis.token_scores, torch.tensor([0, -math.inf]))
