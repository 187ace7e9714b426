from __future__ import annotations

import pytest
import torch

from rskip.generation.ngrams import repeated_ngram_tokens

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
    """fairseq 0.12.2's search hands its block a row that is padded to the greatest length, where the version without
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
