"""Beam search over tables of known probabilities: what it finds, in which order, with which scores."""

from __future__ import annotations

import math

import pytest
import torch

END, UNKNOWN, A, B, C = 2, 3, 4, 5, 6

# Greedy search takes A, whose continuations are all less probable than B's end.
GARDEN_PATH = {
    (): {A: 0.5, B: 0.4, C: 0.1},
    (A,): {A: 0.4, B: 0.35, END: 0.25},
    (B,): {END: 0.9, A: 0.1},
    (A, A): {END: 0.6, A: 0.4},
    (A, B): {END: 0.7, C: 0.3},
}
AA, AB, JUST_B = (A, A, END), (A, B, END), (B, END)


def test_greedy(search, expect):
    expect(search(GARDEN_PATH, beam=1)[0], (AA, 0.12, 3))


def test_beam_finds_what_greedy_search_misses(search, expect):
    # B finishes second, then AB and AA end together: the better one is the second hypothesis, the last that counts.
    expect(search(GARDEN_PATH, beam=2, nbest=2)[0], (JUST_B, 0.36, 2), (AB, 0.1225, 3))


def test_wider_beam_keeps_more(search, expect):
    expect(
        search(GARDEN_PATH, beam=4, nbest=4)[0],
        (JUST_B, 0.36, 2),
        (AB, 0.1225, 3),
        (AA, 0.12, 3),
        ((A, END), 0.125, 2),
    )


def test_end_outside_the_best_of_its_sentence_is_no_hypothesis(search, expect):
    # With two beams "A" would end third, behind "A A" and "B A", and never comes back.
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
def test_attention_is_that_of_the_hypothesis_own_history(search, random_table, attention_after, beam):
    tables = [random_table(f"attention {number}") for number in range(5)]
    seen = set()
    results = search(*tables, beam=beam, nbest=beam, attention=True, max_length_b=9)
    for sentence, hypotheses in enumerate(results):
        for hypothesis in hypotheses:
            tokens = tuple(hypothesis.tokens.tolist())
            expected = torch.stack([attention_after(sentence, tokens[:place]) for place in range(len(tokens))])
            assert torch.equal(hypothesis.attention, expected)
            seen.add(len(tokens))
    assert len(seen) > 2


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_ties_are_decided_alike_alone_and_in_a_batch(search, random_table, beam):
    even = {(): dict.fromkeys((A, B, C, 7), 0.25)}
    pairs = {(first,): dict.fromkeys((A, B), 0.5) for first in (A, B, C, 7)}
    tied = {**even, **pairs}
    others = [random_table(f"beside ties {number}") for number in range(9)]
    alone = search(tied, beam=beam, nbest=beam)[0]
    found = [tuple(each.tokens.tolist()) for each in alone]
    assert len(set(found)) == beam
    assert [each.score for each in alone] == pytest.approx([math.log(1 / 8) / 3] * beam)
    together = search(*others[:4], tied, *others[4:], beam=beam, nbest=beam, max_length_b=6)[4]
    assert [tuple(each.tokens.tolist()) for each in together] == found


def test_no_sentences(search, table_decoder):
    assert search(table_decoder(), memory=[]) == []


@pytest.mark.parametrize("sampling", [False, True])
def test_output_that_is_no_number_is_named(search, table_decoder, sampling):
    decoder = table_decoder({(): {A: 1.0}})
    decoder.log_probabilities = lambda sentence, prefixes: torch.full((len(prefixes), 8), math.nan)
    with pytest.raises(ValueError, match="not a number"):
        search(decoder, sampling=sampling)
