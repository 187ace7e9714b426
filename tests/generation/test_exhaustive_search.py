"""A beam that is wide enough is exhaustive search."""

from __future__ import annotations

import itertools
import math

import pytest

END, A = 2, 4
LONGEST = 3


def every_hypothesis(table, words, shortest):
    """Each string of words of up to LONGEST and the end, with its log-probability."""
    for length in range(shortest, LONGEST + 1):
        for string in itertools.product(words, repeat=length):
            tokens = (*string, END)
            yield tokens, sum(math.log(table(tokens[:place])[token]) for place, token in enumerate(tokens))


@pytest.mark.parametrize(
    ("kind", "alpha", "penalty"),
    [
        ("fairseq", 0, lambda n: 1),
        ("fairseq", 1, lambda n: n),
        ("fairseq", 1.7, lambda n: n**1.7),
        ("gnmt", 0.6, lambda n: ((5 + n) / 6) ** 0.6),
    ],
)
@pytest.mark.parametrize("shortest", [0, 2])
def test_all_strings_in_the_order_of_their_scores(search, random_table, kind, alpha, penalty, shortest):
    words = range(3, 8)  # the unknown token is a word
    tables = [random_table(f"exhaustive {number}") for number in range(3)]
    count = sum(len(words) ** length for length in range(shortest, LONGEST + 1))
    settings = {"length_penalty_kind": kind, "length_penalty": alpha}
    results = search(*tables, beam=count, nbest=count, min_length=shortest, max_length_b=LONGEST, **settings)
    for table, hypotheses in zip(tables, results, strict=True):
        scores = {tokens: total / penalty(len(tokens)) for tokens, total in every_hypothesis(table, words, shortest)}
        assert len(scores) == count
        found = {tuple(each.tokens.tolist()): each.score for each in hypotheses}
        assert len(hypotheses) == len(found) == count
        assert found == pytest.approx(scores, abs=1e-5)
        assert [each.score for each in hypotheses] == sorted(found.values(), reverse=True)
