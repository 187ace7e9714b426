"""Beam search over tables of known probabilities: what it finds, its limits, and the sentences of a batch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tests.generation.conftest import TableDecoder, assert_equal, attention_after, expect, random_table

PAD, END, UNKNOWN, A, B, C = 1, 2, 3, 4, 5, 6

# Greedy search takes A, whose continuations are all less probable than B's end.
GARDEN_PATH = {
    (): {A: 0.5, B: 0.4, C: 0.1},
    (A,): {A: 0.4, B: 0.35, END: 0.25},
    (B,): {END: 0.9, A: 0.1},
    (A, A): {END: 0.6, A: 0.4},
    (A, B): {END: 0.7, C: 0.3},
}
AA, AB, JUST_B, JUST_A = ((A, A, END), 0.12, 3), ((A, B, END), 0.1225, 3), ((B, END), 0.36, 2), ((A, END), 0.125, 2)


@pytest.mark.parametrize(("beam", "expected"), [(1, [AA]), (2, [JUST_B, AB]), (4, [JUST_B, AB, AA, JUST_A])])
def test_a_beam_finds_what_greedy_search_misses(search, beam, expected):
    """With two, B finishes second, then AB and AA end together: the better one is the last hypothesis that counts."""
    expect(search(GARDEN_PATH, beam=beam, nbest=beam)[0], *expected)


def test_end_outside_the_best_of_its_sentence_is_no_hypothesis(search):
    """With two beams "A" would end third, behind "A A" and "B A", and never comes back."""
    probabilities = {
        (): {A: 0.6, B: 0.4},
        (A,): {A: 0.6, B: 0.1, END: 0.3},  # A A 0.36, A END 0.18
        (B,): {A: 0.5, B: 0.49, END: 0.01},  # B A 0.2
    }
    expect(search(probabilities, beam=2, nbest=2)[0], ((A, A, END), 0.36, 3), ((B, A, END), 0.2, 3))


def test_token_scores_are_each_tokens_log_probability(search):
    first, second = search(GARDEN_PATH, beam=2, nbest=2, token_scores=True)[0]
    torch.testing.assert_close(first.token_scores, torch.tensor([0.4, 0.9]).log())
    torch.testing.assert_close(second.token_scores, torch.tensor([0.5, 0.35, 0.7]).log())


@pytest.mark.parametrize("beam", [1, 3])
def test_attention_is_that_of_the_hypothesis_own_history(search, beam):
    tables = [random_table(f"attention {number}") for number in range(5)]
    for sentence, hypotheses in enumerate(search(*tables, beam=beam, nbest=beam, attention=True, max_length_b=9)):
        for hypothesis in hypotheses:
            tokens = tuple(hypothesis.tokens.tolist())
            expected = torch.stack([attention_after(sentence, tokens[:place]) for place in range(len(tokens))])
            assert torch.equal(hypothesis.attention, expected)


@pytest.mark.parametrize("beam", [1, 3, 5])
def test_ties_are_decided_alike_alone_and_in_a_batch(search, beam):
    pairs = {(first,): dict.fromkeys((A, B), 0.5) for first in (A, B, C, 7)}
    tied = {(): dict.fromkeys((A, B, C, 7), 0.25), **pairs}
    others = [random_table(f"beside ties {number}") for number in range(9)]
    alone = search(tied, beam=beam, nbest=beam)[0]
    found = [tuple(each.tokens.tolist()) for each in alone]
    assert len(set(found)) == beam
    assert [each.score for each in alone] == pytest.approx([math.log(1 / 8) / 3] * beam)
    together = search(*others[:4], tied, *others[4:], beam=beam, nbest=beam, max_length_b=6)[4]
    assert [tuple(each.tokens.tolist()) for each in together] == found


@pytest.mark.parametrize("sampling", [False, True])
def test_output_that_is_no_number_is_named(search, sampling):
    assert search(TableDecoder(), memory=[]) == [], "no sentences"
    decoder = TableDecoder({(): {A: 1.0}})
    decoder.log_probabilities = lambda sentence, prefixes: torch.full((len(prefixes), 8), math.nan)
    with pytest.raises(ValueError, match="not a number"):
        search(decoder, sampling=sampling)


LONGEST = 3  # of the exhaustive search


@pytest.mark.parametrize(
    ("kind", "alpha", "penalty"),
    [("fairseq", 0, lambda n: 1), ("fairseq", 1.7, lambda n: n**1.7), ("gnmt", 0.6, lambda n: ((5 + n) / 6) ** 0.6)],
)
@pytest.mark.parametrize("shortest", [0, 2])
def test_a_beam_that_is_wide_enough_is_exhaustive_search(search, kind, alpha, penalty, shortest):
    words = range(3, 8)  # the unknown token is a word
    tables = [random_table(f"exhaustive {number}") for number in range(3)]
    strings = [
        (*string, END) for length in range(shortest, LONGEST + 1) for string in itertools.product(words, repeat=length)
    ]
    settings = {"length_penalty_kind": kind, "length_penalty": alpha, "beam": len(strings), "nbest": len(strings)}
    results = search(*tables, min_length=shortest, max_length_b=LONGEST, **settings)
    for table, hypotheses in zip(tables, results, strict=True):
        scores = {
            tokens: sum(math.log(table(tokens[:place])[token]) for place, token in enumerate(tokens))
            / penalty(len(tokens))
            for tokens in strings
        }
        found = {tuple(each.tokens.tolist()): each.score for each in hypotheses}
        assert found == pytest.approx(scores, abs=1e-5) and len(hypotheses) == len(strings)
        assert [each.score for each in hypotheses] == sorted(found.values(), reverse=True)


def always(**probabilities):
    """The same distribution after every prefix."""
    names = {"end": END, "unknown": UNKNOWN, "a": A, "b": B, "c": C, "pad": PAD}
    distribution = {names[name]: probability for name, probability in probabilities.items()}
    return lambda prefix: distribution


NEVER = always(a=0.9, b=0.09, end=0.01)


@pytest.mark.parametrize(
    ("table", "settings", "tokens", "probability"),
    [
        (always(end=0.7, a=0.2, b=0.1), {"min_length": 0}, (END,), 0.7),
        (always(end=0.7, a=0.2, b=0.1), {"min_length": 3}, (A, A, A, END), 0.2**3 * 0.7),
        (NEVER, {"max_length_b": 3}, (A, A, A, END), 0.9**3 * 0.01),
        (NEVER, {"min_length": 6, "max_length_a": 0.4, "max_length_b": 1}, (A, A, A, END), 0.9**3 * 0.01),
        (always(pad=0.9, a=0.06, end=0.04), {"max_length_b": 2}, (A, A, END), 0.06**2 * 0.04),
        (
            always(unknown=0.9, a=0.06, end=0.04), {"max_length_b": 2, "unknown_penalty": math.inf},
            (A, A, END), 0.06**2 * 0.04,
        ),
        (NEVER, {"prefix": [[B, B, B, B]], "max_length_b": 2}, (B, B, END), 0.09**2 * 0.01),
        (  # a prefix may repeat itself
            always(a=0.6, b=0.2, unknown=0.1, end=0.1),
            {"prefix": [[B, B, B, UNKNOWN]], "no_repeat_ngram": 2, "unknown_penalty": 1.0, "max_length_b": 5},
            (B, B, B, UNKNOWN, A, END), 0.2**3 * (0.1 * math.exp(-1)) * 0.6 * 0.1,
        ),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)  # fmt: skip
def test_limits_of_length_and_forced_tokens(search, table, settings, tokens, probability):
    expect(search(table, beam=1, **settings)[0], (tokens, probability, len(tokens)))


@pytest.mark.parametrize(("a", "b", "lengths"), [(0, 4, [4, 4, 4]), (1, 2, [4, 7, 11]), (0.5, 1, [2, 3, 5])])
def test_max_length_is_relative_to_each_sentences_own_source(search, a, b, lengths):
    settings = {"max_length_a": a, "max_length_b": b, "source_lengths": [2, 5, 9], "beam": 2, "nbest": 2}
    for most in (None, 5):  # what the decoder can
        results = search(TableDecoder(NEVER, NEVER, NEVER, max_positions=most), **settings)
        expected = [[min(each, 4) if most else each] * 2 for each in lengths]
        assert [[len(each.tokens) - 1 for each in hypotheses] for hypotheses in results] == expected


@pytest.mark.parametrize("penalty", [0.5, -1.0])
def test_unknown_penalty_is_taken_from_the_log_probability(search, penalty):
    expected = [((UNKNOWN, END), 0.5 * math.exp(-penalty), 2), ((A, END), 0.5, 2)]
    order = expected if penalty < 0 else reversed(expected)
    expect(search({(): {UNKNOWN: 0.5, A: 0.5}}, beam=2, nbest=2, unknown_penalty=penalty)[0], *order)


@pytest.mark.parametrize("temperature", [0.5, 2])
def test_temperature_divides_the_logits(search, temperature):
    def cooled(distribution):
        powers = {token: probability ** (1 / temperature) for token, probability in distribution.items()}
        return {token: power / sum(powers.values()) for token, power in powers.items()}

    probabilities = {(): {A: 0.7, B: 0.2, C: 0.1}, (A,): {END: 0.9, A: 0.1}, (B,): {END: 0.95, A: 0.05}}
    first, after_a, after_b = (cooled(each) for each in probabilities.values())
    hypotheses = search(probabilities, beam=2, nbest=2, temperature=temperature)[0]
    expect(hypotheses, ((A, END), first[A] * after_a[END], 2), ((B, END), first[B] * after_b[END], 2))


def test_no_repeat_ngram(search):
    loop = {  # A B A B ... for ever
        (): {A: 0.9, B: 0.1},
        (A,): {B: 0.8, C: 0.1, END: 0.1},
        (A, B): {A: 0.8, C: 0.15, END: 0.05},
        (A, B, A): {B: 0.9, C: 0.06, END: 0.04},
        (A, B, A, B): {A: 0.9, C: 0.06, END: 0.04},
        (A, B, C): {END: 0.5, A: 0.3, B: 0.2},
        (A, B, A, C): {END: 0.6, A: 0.4},
    }
    for size, tokens, probability in (
        (0, (A, B, A, B, END), 0.9 * 0.8 * 0.8 * 0.9 * 0.04),
        (3, (A, B, A, B, END), 0.9 * 0.8 * 0.8 * 0.9 * 0.04),
        (2, (A, B, A, C, END), 0.9 * 0.8 * 0.8 * 0.06 * 0.6),
        (1, (A, B, C, END), 0.9 * 0.8 * 0.15 * 0.5),
    ):
        expect(search(loop, no_repeat_ngram=size, beam=1, max_length_b=4)[0], (tokens, probability, len(tokens)))


def test_prefixes_are_forced_and_count_in_the_score(search):
    table = always(a=0.6, b=0.1, c=0.1, end=0.2)
    results = search(table, table, table, prefix=[[B, C, B], [C, PAD, PAD], [PAD] * 3], beam=1, max_length_b=4)
    expect(results[0], ((B, C, B, A, END), 0.1**3 * 0.6 * 0.2, 5))
    expect(results[1], ((C, A, A, A, END), 0.1 * 0.6**3 * 0.2, 5))
    expect(results[2], ((A, A, A, A, END), 0.6**4 * 0.2, 5))


@pytest.mark.parametrize("sampling", [False, True])
def test_dead_end_is_given_back_as_impossible(search, sampling):
    """If nothing may follow, the search returns what there is, with a score of -inf."""
    settings = {"beam": 2, "no_repeat_ngram": 1, "max_length_b": 9, "sampling": sampling}
    hypothesis = search(always(a=1.0), token_scores=True, **settings)[0][0]
    assert (hypothesis.tokens.tolist(), hypothesis.score) == ([A, END], -math.inf)
    assert torch.equal(hypothesis.token_scores, torch.tensor([0, -math.inf]))


def certain(length):
    """A for `length` tokens, then the end, with little doubt."""

    def after(prefix):
        return {A: 0.9, B: 0.08, END: 0.02} if len(prefix) < length else {END: 0.97, A: 0.02, B: 0.01}

    return after


def test_a_finished_sentence_leaves_the_batch(search):
    decoder = TableDecoder(certain(3), certain(1), certain(5))
    assert [len(hypotheses[0].tokens) for hypotheses in search(decoder, beam=1)] == [4, 2, 6]
    assert [sorted(step) for step in decoder.asked] == [[0, 1, 2]] * 2 + [[0, 2]] * 2 + [[2]] * 2


def test_only_a_small_share_of_a_large_batch_may_linger(search):
    """Taking a sentence out costs a copy of the rest, so finished ones may wait: up to an eighth of the batch."""
    lengths = [1 + number % 20 for number in range(60)]
    decoder = TableDecoder(*(certain(length) for length in lengths))
    search(decoder, beam=1)
    assert len(decoder.asked) == 21
    for step, sentences in enumerate(decoder.asked):
        finished = [sentence for sentence in sentences if lengths[sentence] < step]
        assert len(finished) * 8 < len(sentences)
        assert {sentence for sentence in range(60) if lengths[sentence] >= step} <= set(sentences)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 3, "nbest": 2, "no_repeat_ngram": 2, "min_length": 3, "unknown_penalty": 0.5},
        {"beam": 5, "nbest": 5, "max_length_a": 0.5, "max_length_b": 1, "length_penalty_kind": "gnmt"},
    ],
    ids=str,
)
@pytest.mark.parametrize("forced", [False, True])
def test_a_sentence_does_not_depend_on_the_others(search, settings, forced):
    count = 12
    tables = [random_table(f"batch {number}") for number in range(count)]
    lengths = [2 + number % 7 for number in range(count)]
    prefix = [[4 + number % 3, 1 if number % 2 else 5] for number in range(count)] if forced else None
    settings = {"max_length_b": 9, **settings, "token_scores": True, "attention": True}
    together = search(*tables, source_lengths=lengths, prefix=prefix, **settings)
    for number in range(count):
        own = {"source_lengths": [lengths[number]], "prefix": prefix and [prefix[number]]}
        assert_equal(search(TableDecoder(*tables), memory=[number], **own, **settings), [together[number]])
