from __future__ import annotations

import math

import pytest
import torch

from rskip.generation import SearchOptions, SpecialTokens
from rskip.generation.processors import Step, build_processors, repeated_ngram_tokens
from rskip.text import Dictionary

FILLER = 0


def pairs(prefixes, size):
    repeated = repeated_ngram_tokens(torch.tensor(prefixes), size, filler=FILLER).tolist()
    return {(row, token) for row, tokens in enumerate(repeated) for token in tokens if token != FILLER}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, {(0, 4), (0, 5), (0, 6), (1, 7), (1, 4)}),
        (2, {(0, 5), (0, 6), (1, 7), (1, 4)}),
        (3, {(0, 6)}),
        (4, set()),
        (5, set()),
        (6, set()),
        (99, set()),
    ],
)
def test_tokens_that_would_complete_an_ngram(size, expected):
    rows = [
        [4, 5, 4, 6, 4],  # after "4": 5 and 6 came
        [7, 7, 7, 4, 7],  # after "7": 7 and 4 came
    ]
    if size == 3:
        rows[0] = [5, 4, 6, 5, 4]  # after "5 4": 6 came
    assert pairs(rows, size) == expected


def test_no_tokens_yet():
    for size in (1, 2, 3):
        assert repeated_ngram_tokens(torch.empty(3, 0, dtype=torch.int64), size, filler=FILLER).tolist() == [[]] * 3


def test_rows_are_of_one_batch_but_not_mixed():
    assert pairs([[4, 5, 4], [4, 6, 4], [5, 5, 6]], 2) == {(0, 5), (1, 6)}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_equal_to_fairseqs_block(size):
    """fairseq 0.12.2's search hands its block a row that is padded to the max length, where the version without
    CUDA then compares padding and forbids nothing; given the row alone, it does what it is for."""
    block = pytest.importorskip("fairseq.ngram_repeat_block", reason="needs fairseq: run `rskip setup-fairseq`")
    blocker = block.NGramRepeatBlock(size, use_extension=False)
    torch.manual_seed(size)
    vocabulary, forbidden = 7, 0
    for length in range(1, 25):
        prefixes = torch.randint(4, vocabulary, (6, length))
        prefixes[:, 0] = 2  # the start
        step = length - 1
        expected = blocker(prefixes, torch.zeros(6, vocabulary), 2, 3, step)
        ours = torch.zeros(6, vocabulary)
        ours.scatter_(1, repeated_ngram_tokens(prefixes, size, filler=FILLER), float("-inf"))
        assert torch.equal(ours[:, 1:], expected[:, 1:])  # tokens are from 2
        forbidden += int(expected.isinf().sum())
    assert forbidden > 40


def test_special_tokens_are_by_default_those_of_rskips_and_fairseqs_dictionaries():
    assert SpecialTokens() == SpecialTokens.of(Dictionary)
    fairseq_data = pytest.importorskip("fairseq.data", reason="needs fairseq: run `rskip setup-fairseq`")
    assert SpecialTokens() == SpecialTokens.of(fairseq_data.Dictionary())


def test_a_forced_token_follows_whatever_is_forbidden_and_keeps_its_logit():
    options = SearchOptions(min_length=3, no_repeat_ngram=1, unknown_penalty=math.inf)
    logits = torch.arange(12.0).view(2, 1, 6)
    expected = [[[-math.inf] * 3 + [3.0] + [-math.inf] * 2], [[6.0, -math.inf, -math.inf, -math.inf, 10.0, -math.inf]]]
    step = Step(length=1, tokens=torch.tensor([[[2, 3]], [[2, 5]]]), prefixes=[[3, 3], [4, 1]], limits=[9, 9])
    for process in build_processors(options, SpecialTokens()):
        process(logits, step)
    assert logits.tolist() == expected


@pytest.mark.parametrize(("penalty", "kept"), [(0.0, 3.0), (0.5, 2.5), (-0.5, 3.5), (math.inf, -math.inf)])
def test_the_unknown_token_is_as_improbable_as_asked_for(penalty, kept):
    logits = torch.arange(5.0).view(1, 1, 5)
    step = Step(length=4, tokens=torch.zeros(1, 1, 5, dtype=torch.int64), prefixes=[[]], limits=[9])
    for process in build_processors(SearchOptions(unknown_penalty=penalty, min_length=0), SpecialTokens()):
        process(logits, step)
    assert logits.tolist() == [[[0.0, -math.inf, 2.0, kept, 4.0]]]
