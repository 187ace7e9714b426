"""The command lines of a run: flags, devices, and an update that has its tokens on any number of GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rskip.experiments.commands import average_command, flags_to_arguments, generate_command, train_command
from rskip.experiments.tokens_per_update import Batches, plan_batches, split_update
from rskip.experiments.translation_settings import TranslationSettings

DATA = Path("data-bin")


@pytest.fixture
def settings():
    """Settings with these flags of fairseq-train besides what every recipe has."""

    def build(**train: object) -> TranslationSettings:
        flags = {"arch": "transformer_rskip_ln_tiny", "max-update": 100_000}
        flags |= {name.replace("_", "-"): value for name, value in train.items()}
        return TranslationSettings.from_mapping({"corpus": "numbers-en-de", "train": flags})

    return build


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the environment's programs."""
    (tmp_path / "fairseq-train").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def train(settings: TranslationSettings, *, gpus: int) -> str:
    return " ".join(train_command(settings, data=DATA, checkpoints=Path("kept"), seed=3, gpus=gpus))


@pytest.mark.parametrize(
    ("tokens", "gpus", "update_freq", "max_tokens"),
    [
        (4096, 1, 1, 4096), (4096, 2, 1, 2048), (4096, 3, 1, 1365), (4096, 4, 1, 1024),
        (16384, 1, 4, 4096), (16384, 2, 2, 4096), (16384, 3, 2, 2730), (16384, 4, 1, 4096), (16384, 8, 1, 2048),
        (25000, 1, 7, 3571), (25000, 2, 4, 3125), (25000, 3, 3, 2777), (25000, 4, 2, 3125), (25000, 8, 1, 3125),
    ],
)  # fmt: skip
def test_the_papers_updates_on_so_many_gpus(tokens: int, gpus: int, update_freq: int, max_tokens: int) -> None:
    batches = split_update(tokens, gpus=gpus, most=4096, longest=1024)
    assert batches == Batches(gpus=gpus, update_freq=update_freq, max_tokens=max_tokens)


def test_an_update_is_as_few_batches_as_fit_and_loses_less_than_a_token_of_each() -> None:
    for tokens in range(1000, 30_000, 777):
        for gpus in range(1, 18):
            batches = split_update(tokens, gpus=gpus, most=3000, longest=1)
            assert batches.max_tokens <= 3000
            assert gpus * (batches.update_freq - 1) * 3000 < tokens, "fewer batches would do"
            assert 0 <= tokens - batches.tokens < gpus * batches.update_freq


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        (Batches(gpus=1, update_freq=1, max_tokens=4096), "4,096 tokens an update: one batch"),
        (Batches(gpus=1, update_freq=7, max_tokens=3571), "24,997 tokens an update: 7 batches of 3,571"),
        (Batches(gpus=3, update_freq=2, max_tokens=2730), "16,380 tokens an update: 6 batches of 2,730 on 3 GPUs"),
    ],
)
def test_what_an_update_is_made_of_is_told(batches: Batches, text: str) -> None:
    assert str(batches) == text


def test_without_tokens_per_update_an_update_is_what_the_flags_make_it_on_one_gpu() -> None:
    assert plan_batches({"max-tokens": 2048, "update-freq": 3}, gpus=0) is None
    assert plan_batches({"max-tokens": 2048, "update-freq": 3}, gpus=1) is None
    batches = plan_batches({"max-tokens": 4096, "update-freq": 3}, gpus=4)
    assert batches == Batches(gpus=4, update_freq=1, max_tokens=3072)


@pytest.mark.parametrize(
    ("flags", "gpus", "message"),
    [
        ({"tokens-per-update": 4096, "max-tokens": 4096}, 8, "on 8 GPUs that is 512 tokens a batch and"),
        ({"tokens-per-update": 1000, "max-tokens": 4096}, 1, "on 1 GPU that is 1,000 tokens a batch"),
        ({"tokens-per-update": 1500, "max-tokens": 1400}, 0, "give a greater train.max-tokens or lower these"),
        ({"batch-size": 64}, 2, "2 GPUs: give train.tokens-per-update and train.max-tokens"),
        ({"max-tokens": 4096, "update-freq": "4,2"}, 2, "2 GPUs: give train.tokens-per-update"),
    ],
)
def test_an_update_that_cannot_be_divided_is_refused(flags: dict[str, object], gpus: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_batches(flags, gpus=gpus)


def test_the_longest_sentence_is_what_the_flags_allow() -> None:
    flags = {"tokens-per-update": 4096, "max-tokens": 4096, "max-source-positions": 512, "max-target-positions": 256}
    assert plan_batches(flags, gpus=8) == Batches(gpus=8, update_freq=1, max_tokens=512)


def test_one_device_is_named(settings) -> None:
    of_recipe = settings(tokens_per_update=25_000, max_tokens=4096, lr=0.1, bf16=True)
    start = "fairseq-train data-bin --source-lang en --target-lang de --user-dir rskip --seed 3 --save-dir kept "
    start += "--keep-last-epochs 10 --log-format json --log-interval 100"
    end = "--arch transformer_rskip_ln_tiny --max-update 100000 --max-tokens 3571 --lr 0.1 --bf16 --update-freq 7"
    assert train(of_recipe, gpus=0) == f"{start} --cpu {end}"
    assert train(of_recipe, gpus=1) == f"{start} --distributed-world-size 1 {end}"
    for gpu, device in ((False, "--cpu"), (True, "--distributed-world-size 1")):
        generate = generate_command(of_recipe, data=DATA, checkpoint=Path("averaged.pt"), gpu=gpu)
        assert " ".join(generate).endswith(f"--path averaged.pt --gen-subset test {device}")


def test_float32_leaves_out_the_flags_of_other_formats(settings) -> None:
    of_recipe = settings(max_tokens=2048, bf16=True, amp=True)
    as_it_says = train_command(of_recipe, data=DATA, checkpoints=Path("kept"), seed=3, gpus=0)
    command = train_command(of_recipe, data=DATA, checkpoints=Path("kept"), seed=3, gpus=0, precision="float32")
    assert command == [argument for argument in as_it_says if argument not in ("--bf16", "--amp")]
    assert len(command) == len(as_it_says) - 2


def test_several_gpus_are_torchruns(settings, programs: Path) -> None:
    command = train(settings(tokens_per_update=25_000, max_tokens=4096), gpus=4)
    assert command.startswith(f"torchrun --standalone --nproc-per-node 4 {programs}/fairseq-train data-bin ")
    assert command.endswith("--max-tokens 3125 --update-freq 2")
    assert "--cpu" not in command and "--distributed-world-size" not in command


def test_checkpoints_of_updates_are_kept_and_averaged_where_the_recipe_writes_them(settings) -> None:
    by_update = settings(max_tokens=2048, save_interval_updates=1000)
    assert " --keep-interval-updates 10 --no-epoch-checkpoints " in train(by_update, gpus=0)
    average = average_command(by_update, checkpoints=Path("kept"), output=Path("averaged.pt"))
    assert " ".join(average) == "rskip average --last 10 --by update kept --output averaged.pt"
    average = average_command(settings(max_tokens=2048), checkpoints=Path("kept"), output=Path("averaged.pt"))
    assert " ".join(average) == "rskip average --last 10 kept --output averaged.pt"


def test_shards_are_joined_by_colons() -> None:
    train_flags = {"arch": "transformer_sas", "max-update": 1}
    sharded = TranslationSettings.from_mapping(
        {"corpus": "multi30k-en-de", "prepare": {"shards": 2}, "train": train_flags}
    )
    assert train(sharded, gpus=0).split()[1] == "data-bin/shard1:data-bin/shard2"


def test_flags_are_given_bare_with_a_value_or_not_at_all() -> None:
    flags = {"bf16": True, "fp16": False, "patience": None, "lr": 5e-3, "lenpen": -0.5}
    assert flags_to_arguments(flags) == ["--bf16", "--lr", "0.005", "--lenpen=-0.5"]
