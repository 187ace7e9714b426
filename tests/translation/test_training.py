"""Tests the command lines of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import flags_to_arguments
from rskip.tasks.run import Run
from rskip.translation.recipe import TranslationSettings
from rskip.translation.training import average_command, generate_command, training_of


def run_with(*, gpus: int = 0, **train: object) -> Run[TranslationSettings]:
    """A run with these flags of fairseq-train besides what every recipe has."""
    flags: dict[str, Any] = {"arch": "transformer_rskip_ln_tiny", "max-update": 100_000, "max-tokens": 2048}
    flags |= {name.replace("_", "-"): value for name, value in train.items()}
    settings = convert({"corpus": "numbers-en-de", "train": flags}, TranslationSettings)
    return Run(name="mine", seed=3, settings=settings, gpus=gpus)


def train(run: Run[TranslationSettings], *, precision: str = "bfloat16") -> str:
    return " ".join(training_of(run).command(precision))


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the environment's programs."""
    (tmp_path / "fairseq-train").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def test_tokens_per_update_is_a_number_beside_which_nothing_divides_an_update() -> None:
    for flags, named in [
        ({"tokens-per-update": 25000, "max-tokens": None, "batch-size": 8}, "train.max-tokens"),
        ({"tokens-per-update": 1e4, "max-tokens": 1024}, "train.tokens-per-update"),
        ({"tokens-per-update": 9, "max-tokens": True}, "train.max-tokens"),
        ({"tokens-per-update": 9, "max-tokens": 9, "update-freq": 2}, "train.update-freq"),
        ({"tokens-per-update": 9, "max-tokens": 9, "batch-size": 2}, "train.batch-size"),
    ]:
        with pytest.raises(SettingError) as error:
            run_with(**flags)
        assert error.value.name == named
    run_with(max_tokens="many")


def test_one_device_is_named() -> None:
    start = "fairseq-train data-bin/numbers-en-de --source-lang en --target-lang de --user-dir rskip --seed 3 "
    start += "--save-dir runs/mine/3/checkpoints --keep-last-epochs 10 --log-format json --log-interval 100"
    end = "--arch transformer_rskip_ln_tiny --max-update 100000 --max-tokens 3571 --lr 0.1 --bf16 --update-freq 7"
    for gpus, device in enumerate(("--cpu", "--distributed-world-size 1")):
        run = run_with(tokens_per_update=25_000, max_tokens=4096, lr=0.1, bf16=True, gpus=gpus)
        assert train(run) == f"{start} {device} {end}"
        generate = generate_command(run, checkpoint=Path("averaged.pt"))
        assert " ".join(generate).endswith(f"--path averaged.pt --gen-subset test {device}")


def test_adam_is_ours_on_gpus() -> None:
    """Updates and checkpoints are the same: tests/fairseq_plugin/test_adam.py."""
    for gpus, flags, name in [
        (0, {}, "adam"), (1, {}, "rskip_adam"), (2, {}, "rskip_adam"), (1, {"use_old_adam": True}, "adam"),
    ]:  # fmt: skip
        assert f"--optimizer {name}" in train(run_with(gpus=gpus, optimizer="adam", **flags))
    assert "--optimizer sgd" in train(run_with(gpus=1, optimizer="sgd"))


def test_a_precision_is_what_the_flags_ask_for_and_float32_leaves_them_out() -> None:
    for flag, precision in {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}.items():
        assert training_of(run_with(**{flag: True})).precision == precision
        assert training_of(run_with(**{flag: False})).precision == "float32"
    run = run_with(bf16=True, amp=True)
    as_it_says = train(run).split()
    command = train(run, precision="float32").split()
    assert command == [argument for argument in as_it_says if argument not in ("--bf16", "--amp")]
    assert len(command) == len(as_it_says) - 2


def test_several_gpus_are_torchruns(programs: Path) -> None:
    command = train(run_with(tokens_per_update=25_000, max_tokens=4096, gpus=4))
    assert command.startswith(f"torchrun --standalone --nproc-per-node 4 {programs}/fairseq-train data-bin/")
    assert command.endswith("--max-tokens 3125 --update-freq 2")
    assert "--cpu" not in command and "--distributed-world-size" not in command and "per-update" not in command


def test_checkpoints_of_updates_are_kept_and_averaged_where_the_recipe_writes_them() -> None:
    by_update = run_with(save_interval_updates=1000)
    assert " --keep-interval-updates 10 --no-epoch-checkpoints " in train(by_update)
    kept = "runs/mine/3/checkpoints --output runs/mine/3/averaged.pt"
    assert " ".join(average_command(by_update)) == f"rskip average --last 10 --by update {kept}"
    assert " ".join(average_command(run_with())) == f"rskip average --last 10 {kept}"


def test_shards_are_joined_by_colons() -> None:
    flags = {"arch": "transformer_sas", "max-tokens": 4000, "max-update": 1}
    content = {"corpus": "multi30k-en-de", "prepare": {"shards": 2}, "train": flags}
    run = Run(name="mine", seed=1, settings=convert(content, TranslationSettings))
    shards = train(run).split()[1].split(":")
    assert [shard.partition("/shard")[2] for shard in shards] == ["1", "2"]


def test_a_user_dir_of_ones_own_takes_the_place_of_rskips(tmp_path: Path) -> None:
    assert " --user-dir rskip " in train(run_with())
    (tmp_path / "own_parts").mkdir()
    (tmp_path / "own_parts" / "__init__.py").touch()
    run = run_with(user_dir=str(tmp_path / "own_parts"))
    for command in (train(run), " ".join(generate_command(run, checkpoint=Path("averaged.pt")))):
        assert command.count("--user-dir") == 1 and f" --user-dir {tmp_path / 'own_parts'} " in command


def test_flags_are_given_bare_with_a_value_or_not_at_all() -> None:
    flags = {"bf16": True, "fp16": False, "patience": None, "lr": 5e-3, "lenpen": -0.5}
    assert flags_to_arguments(flags) == ["--bf16", "--lr", "0.005", "--lenpen=-0.5"]
