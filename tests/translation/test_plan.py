"""The rule that chooses a training's settings: its values at several sizes, and its limits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from rskip.experiments.recipe import load_recipe
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.translation.corpus_size import CorpusSize
from rskip.translation.plan import Choices, Hardware, Plan, cautions, make_plan
from rskip.translation.recipe import TranslationSettings

CPU, GPU = Hardware(gpus=0, bfloat16=True), Hardware(gpus=1, bfloat16=True)


def corpus(pairs: int, *, length: int = 16, vocabulary: int = 10_000, joined: bool = True) -> CorpusSize:
    """Pairs whose longer side has `length` tokens."""
    source, target = np.full(pairs, length, dtype=np.int32), np.full(pairs, length - 1, dtype=np.int32)
    return CorpusSize(source=source, target=target, vocabulary=vocabulary, joined=joined)


def plan(pairs: int, hardware: Hardware = CPU, *, limit: int | None = None, length: int = 16, **choices: Any) -> Plan:
    return make_plan(corpus(pairs, length=length), hardware, Choices(**choices), limit=limit)


class Multi30k(CorpusSize):
    """Multi30k English-German as `rskip prepare` makes it: its tokens and batches, without its sentences."""

    pairs, tokens = 29_000, 467_086

    def batches(self, max_tokens: int) -> int:
        assert max_tokens == 2048
        return 248


def test_multi30k_gets_the_settings_of_its_recipe() -> None:
    empty = np.empty(0, dtype=np.int32)
    chosen = make_plan(Multi30k(source=empty, target=empty, vocabulary=9792, joined=True), CPU, Choices())
    recipe = load_recipe("recipes/multi30k_en_de.yaml", variant="2xskip_ln").config
    settings = chosen.settings()
    assert settings["train"].pop("patience") == 14  # half of 28 epochs
    assert settings["train"] == recipe["train"]
    assert settings["average"] == recipe["average"] and settings["generate"] == recipe["generate"]
    assert (chosen.updates, chosen.per_epoch) == (6944, 248)


@pytest.mark.parametrize(
    ("pairs", "length", "hardware", "size", "updates", "tokens", "dropout"),
    [
        (1_000, 18, CPU, "tiny", 1_359, 2048, 0.3),
        (5_000, 18, CPU, "tiny", 3_060, 2048, 0.3),
        (30_000, 25, CPU, "tiny", 8_625, 2048, 0.2),
        (160_000, 25, CPU, "small", 20_000, 4096, 0.2),
        (160_000, 25, GPU, "iwslt", 20_000, 4096, 0.2),
        (4_500_000, 29, GPU, "base", 117_894, 25_000, 0.1),
    ],
)
def test_size_updates_and_dropout_follow_the_corpus(
    pairs: int, length: int, hardware: Hardware, size: str, updates: int, tokens: int, dropout: float
) -> None:
    chosen = plan(pairs, hardware, length=length)
    assert chosen.size == size
    assert chosen.updates == updates
    assert chosen.train.get("tokens-per-update", chosen.train["max-tokens"]) == tokens
    assert chosen.train["dropout"] == dropout


@pytest.mark.parametrize(("limit", "interval", "averaged"), [(None, 1574, 10), (5000, 250, 6), (300, 100, 1)])
def test_a_plan_of_few_long_epochs_counts_updates(limit: int | None, interval: int, averaged: int) -> None:
    chosen = plan(2_000_000, length=30, limit=limit)
    assert "max-epoch" not in chosen.train and chosen.train["max-update"] == chosen.updates
    assert (chosen.train["save-interval-updates"], chosen.averaged) == (interval, averaged)


@pytest.mark.parametrize(
    ("pairs", "updates", "per_epoch", "interval"), [(760, 41, 6, 1), (2_000_000, 20_000, 8402, 399)]
)
def test_few_checkpoints_by_updates_fall_on_the_end_of_an_epoch(
    pairs: int, updates: int, per_epoch: int, interval: int
) -> None:
    """There fairseq saves none."""
    chosen = plan(pairs, updates=updates)
    assert (chosen.per_epoch, chosen.train["save-interval-updates"]) == (per_epoch, interval)


def test_choices_override_the_rule() -> None:
    chosen = plan(29_000, epochs=6, size="small", connection="2rskip+ln", precision="float32")
    assert (chosen.train["max-epoch"], chosen.averaged) == (6, 2)
    assert chosen.train["arch"] == "transformer_rskip_ln_small"
    assert "bf16" not in chosen.train and "fp16" not in chosen.train
    assert plan(29_000, limit=10**9).train == plan(29_000).train


def test_a_limit_is_kept_in_whole_epochs_of_a_small_corpus() -> None:
    one = plan(29_000, epochs=1).updates
    assert one == 227
    limited = plan(29_000, limit=1000)
    assert limited.train["max-epoch"] == 4 and limited.updates == limited.train["total-num-update"] == 4 * one
    assert plan(29_000, updates=500, limit=400).updates == one
    below = plan(29_000, limit=100)
    assert (below.updates, below.train["max-update"], below.train["save-interval-updates"]) == (100, 100, 33)
    assert "; 100 updates (epochs: 0.44) of " in below.described(below.train)


@pytest.mark.parametrize(
    ("updates", "length", "averaged"),
    [
        (20, {"max-update": 20, "save-interval-updates": 6}, 1),
        (454, {"max-epoch": 2}, 1),
        (500, {"max-update": 500, "save-interval-updates": 113}, 1),
        (5000, {"max-update": 5000}, 8),  # averages checkpoints of epochs
    ],
)
def test_a_chosen_number_of_updates_is_kept(updates: int, length: dict[str, int], averaged: int) -> None:
    chosen = plan(29_000, updates=updates, limit=10_000)
    train = chosen.train
    assert chosen.updates == train["total-num-update"] == updates and chosen.averaged == averaged
    assert {key: train[key] for key in ("max-epoch", "max-update", "save-interval-updates") if key in train} == length


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"patience": 3}, ["size", "updates", "dropout", "connection"]),
        ({"dropout": 0.05}, ["size", "updates", "connection"]),
        ({"max-tokens": 1024}, ["size", "dropout", "connection"]),
        ({"share-all-embeddings": None, "max-epoch": 1}, ["dropout", "connection"]),
        ({"arch": "transformer_sas_small"}, ["updates", "dropout"]),
    ],
)
def test_the_description_leaves_out_what_other_flags_change(changes: dict[str, Any], left: list[str]) -> None:
    chosen = plan(29_000)
    line = chosen.described({**chosen.train, **changes})
    assert [word for word in ("size", "updates", "dropout", "connection") if word in line] == left


def test_a_connection_without_an_architecture_of_its_name_is_a_flag() -> None:
    train = plan(29_000, connection="askip+ln").train
    assert (train["arch"], train["connection"]) == ("transformer_skip_ln_tiny", "askip+ln")


def test_sas_gets_half_the_rate_and_a_clipped_gradient() -> None:
    sas, other = (plan(29_000, connection=connection).train for connection in ("sas", "2xskip+ln"))
    assert (sas["lr"], sas["clip-norm"]) == (0.002, 1.0) and (other["lr"], other["clip-norm"]) == (0.004, 0.0)


def test_precision_is_what_the_machine_is_fast_in() -> None:
    assert "bf16" in plan(100, CPU).train
    assert plan(100, Hardware(gpus=0, bfloat16=False)).train.keys().isdisjoint({"bf16", "fp16"})
    assert plan(100, Hardware(gpus=1, bfloat16=False)).train["fp16"] is True


def test_two_dictionaries_share_the_decoders_embeddings_only() -> None:
    train = make_plan(corpus(100, joined=False), CPU, Choices()).train
    assert "share-all-embeddings" not in train and train["share-decoder-input-output-embed"] is True


@pytest.mark.parametrize("pairs", [1, 100, 60_000, 1_000_000])
@pytest.mark.parametrize("hardware", [CPU, GPU])
@pytest.mark.parametrize("choices", [{}, {"epochs": 1}, {"updates": 1}, {"updates": 7}, {"size": "big"}])
def test_every_plan_is_a_recipe(pairs: int, hardware: Hardware, choices: dict[str, Any]) -> None:
    settings = plan(pairs, hardware, **choices).settings()
    convert({"corpus": "numbers-en-de", **settings}, TranslationSettings)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"size": "huge"}, "size is 'huge': expected "),
        ({"epochs": 3, "updates": 100}, "epochs is given together with updates"),
        ({"connection": "2rskp"}, "connection is '2rskp': expected "),
    ],
)
def test_what_can_not_be_chosen_is_one_line(choices: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as raised:
        Choices(**choices)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("pairs", "arguments", "said"),
    [
        (30_000, {}, []),
        (30_000, {"limit": 5_000}, []),
        (30_000, {"epochs": 3}, [r"^705 updates \(3 passes .*\) are too few; the full training has 7,050: "]),
        (500_000, {"updates": 50}, [r"^50 updates \(0\.\d+ passes over the data\) are too few"]),
        (4_499, {}, [r"^4,499 sentence pairs are too few: expected about 5,000 or more\. "]),
    ],
)
def test_a_training_that_is_too_short_or_has_too_little_text_is_cautioned(
    pairs: int, arguments: dict[str, Any], said: list[str]
) -> None:
    lines = cautions(plan(pairs, length=16, **arguments), pairs)
    assert len(lines) == len(said), lines
    for line, pattern in zip(lines, said, strict=True):
        assert re.search(pattern, line), line
