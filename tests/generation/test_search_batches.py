"""Sentences of a batch: each is searched as if alone, and leaves when it is finished."""

from __future__ import annotations

import pytest
import torch

END, A, B = 2, 4, 5


def certain(length):
    """A for `length` tokens, then the end, with little doubt."""

    def after(prefix):
        return {A: 0.9, B: 0.08, END: 0.02} if len(prefix) < length else {END: 0.97, A: 0.02, B: 0.01}

    return after


def test_a_finished_sentence_leaves_the_batch(search, table_decoder):
    decoder = table_decoder(certain(3), certain(1), certain(5))
    results = search(decoder, beam=1)
    assert [len(hypotheses[0].tokens) for hypotheses in results] == [4, 2, 6]
    assert [sorted(step) for step in decoder.asked] == [[0, 1, 2]] * 2 + [[0, 2]] * 2 + [[2]] * 2


def test_a_sentence_is_finished_by_as_many_hypotheses_as_beams(search, table_decoder):
    """Its best hypothesis is found at once; the second, which it waits for, comes two tokens later."""
    table = {
        (): {A: 0.6, B: 0.4},
        (A,): {END: 0.9, A: 0.1},
        (B,): {A: 0.7, B: 0.2, END: 0.1},
        (B, A): {A: 0.9, B: 0.05, END: 0.05},
        (B, B): {A: 0.9, END: 0.1},
    }
    decoder = table_decoder(table)
    hypotheses = search(decoder, beam=2, nbest=2)[0]
    assert [tuple(each.tokens.tolist()) for each in hypotheses] == [(A, END), (B, A, A, END)]
    assert len(decoder.asked) == 4
    assert len(decoder.asked[1][0]) == 2


def test_only_a_small_share_of_a_large_batch_may_linger(search, table_decoder):
    """Taking a sentence out costs a copy of the rest, so finished ones may wait: up to an eighth of the batch."""
    lengths = [1 + number % 20 for number in range(60)]
    decoder = table_decoder(*(certain(length) for length in lengths))
    search(decoder, beam=1)
    assert len(decoder.asked) == 21
    lingered = 0
    for step, sentences in enumerate(decoder.asked):
        finished = [sentence for sentence in sentences if lengths[sentence] < step]
        lingered += len(finished)
        assert len(finished) * 8 < len(sentences)
        assert {sentence for sentence in range(60) if lengths[sentence] >= step} <= set(sentences)
    assert lingered


SETTINGS = [
    {"beam": 1},
    {"beam": 4, "nbest": 4},
    {"beam": 3, "nbest": 2, "no_repeat_ngram": 2, "min_length": 3, "unknown_penalty": 0.5},
    {"beam": 5, "nbest": 5, "max_length_a": 0.5, "max_length_b": 1, "length_penalty_kind": "gnmt"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("forced", [False, True])
def test_a_sentence_does_not_depend_on_the_others(search, table_decoder, random_table, settings, forced):
    count = 20
    tables = [random_table(f"batch {number}") for number in range(count)]
    lengths = [2 + number % 7 for number in range(count)]
    prefix = [[4 + number % 3, 1 if number % 2 else 5] for number in range(count)] if forced else None
    settings = {"max_length_b": 9, **settings, "token_scores": True, "attention": True}
    together = search(*tables, source_lengths=lengths, prefix=prefix, **settings)
    for number in range(count):
        forced_alone = None if prefix is None else [prefix[number]]
        (alone,) = search(
            table_decoder(*tables), memory=[number], source_lengths=[lengths[number]], prefix=forced_alone, **settings
        )
        assert len(alone) == len(together[number]) > 0
        for one, other in zip(alone, together[number], strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
            assert one.score == pytest.approx(other.score, abs=1e-5)
            torch.testing.assert_close(one.token_scores, other.token_scores, rtol=0, atol=1e-5)
            assert torch.equal(one.attention, other.attention)
