"""An update has the same tokens on any number of GPUs."""

from __future__ import annotations

import pytest

from rskip.translation.batches import Batches, plan_batches, split_update

PAPERS_UPDATES = [  # tokens, GPUs; batches of each GPU, tokens of a batch
    *[(4096, 1, 1, 4096), (4096, 2, 1, 2048), (4096, 3, 1, 1365), (4096, 4, 1, 1024)],
    *[(16384, 1, 4, 4096), (16384, 2, 2, 4096), (16384, 3, 2, 2730), (16384, 4, 1, 4096), (16384, 8, 1, 2048)],
    *[(25000, 1, 7, 3571), (25000, 2, 4, 3125), (25000, 3, 3, 2777), (25000, 4, 2, 3125), (25000, 8, 1, 3125)],
]


def test_the_papers_updates_on_so_many_gpus() -> None:
    for tokens, gpus, update_freq, max_tokens in PAPERS_UPDATES:
        batches = split_update(tokens, gpus=gpus, most=4096, longest=1024)
        assert batches == Batches(gpus=gpus, update_freq=update_freq, max_tokens=max_tokens)


def test_an_update_is_as_few_batches_as_fit_and_loses_less_than_a_token_of_each() -> None:
    for tokens in range(1000, 30_000, 777):
        for gpus in range(1, 18):
            batches = split_update(tokens, gpus=gpus, most=3000, longest=1)
            assert batches.max_tokens <= 3000
            assert gpus * (batches.update_freq - 1) * 3000 < tokens, "fewer batches would do"
            assert 0 <= tokens - batches.tokens < gpus * batches.update_freq


def test_what_an_update_is_made_of_is_told() -> None:
    for batches, text in {
        Batches(gpus=1, update_freq=1, max_tokens=4096): "4,096 tokens per update: one batch",
        Batches(gpus=1, update_freq=7, max_tokens=3571): "24,997 tokens per update: 7 batches of 3,571",
        Batches(gpus=3, update_freq=2, max_tokens=2730): "16,380 tokens per update: 6 batches of 2,730 on 3 GPUs",
    }.items():
        assert str(batches) == text


def test_without_tokens_per_update_an_update_is_what_the_flags_make_it_on_one_gpu() -> None:
    assert plan_batches({"max-tokens": 2048, "update-freq": 3}, gpus=0) is None
    assert plan_batches({"max-tokens": 2048, "update-freq": 3}, gpus=1) is None
    batches = plan_batches({"max-tokens": 4096, "update-freq": 3}, gpus=4)
    assert batches == Batches(gpus=4, update_freq=1, max_tokens=3072)


def test_an_update_that_cannot_be_divided_is_refused() -> None:
    for flags, gpus, message in [
        ({"tokens-per-update": 4096, "max-tokens": 4096}, 8, "on 8 GPUs that is 512 tokens per batch, but"),
        ({"tokens-per-update": 1000, "max-tokens": 4096}, 1, "on 1 GPU that is 1,000 tokens per batch"),
        ({"tokens-per-update": 1500, "max-tokens": 1400}, 0, "increase train.max-tokens or lower these"),
        ({"batch-size": 64}, 2, "2 GPUs need train.tokens-per-update and train.max-tokens"),
        ({"max-tokens": 4096, "update-freq": "4,2"}, 2, "2 GPUs need train.tokens-per-update"),
    ]:
        with pytest.raises(ValueError, match=message):
            plan_batches(flags, gpus=gpus)


def test_the_longest_sentence_is_what_the_flags_allow() -> None:
    flags = {"tokens-per-update": 4096, "max-tokens": 4096, "max-source-positions": 512, "max-target-positions": 256}
    assert plan_batches(flags, gpus=8) == Batches(gpus=8, update_freq=1, max_tokens=512)
