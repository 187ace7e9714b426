"""`rskip run` of the toy task: what is done once, what is another run, mistakes, and kills at any rename."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.cli.main import main
from rskip.files.checksum import sha256_file
from rskip.records import read_record
from rskip.tasks import Task

MINE = "recipes/mine.yaml"
SWEEP = """
kind: line
slope: 3.0
variants: {fast: {description: few steps, train: {steps: 5}}, slow: {description: many, train: {steps: 30}}, faster: }
"""
Capture = pytest.CaptureFixture[str]


def figures(path: str) -> dict[str, Any]:
    """What of a record doesn't depend on when it was made, and in how many sessions."""
    record = read_record(Path(path))
    training = {name: value for name, value in record.training.items() if name != "pieces"}
    return {"metrics": record.metrics, "config": record.config, "training": training, "curve": record.curve}


def names(folder: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file())


def test_a_record_is_of_everything(project: Path) -> None:
    assert main(["run", MINE, "--seeds", "7", "--gpus", "0", "--set", "train.steps=3"]) == 0
    (name,) = (path.name for path in Path("results").iterdir())
    record = read_record(Path("results", name, "7.json"))
    assert re.fullmatch("mine-[0-9a-f]{8}", name)
    assert (record.recipe, record.run, record.seed, record.overrides) == ("mine", name, 7, {"train.steps": 3})
    assert record.training == {"seconds": 60.0, "pieces": 1, "precision": "float32", "steps": 3}
    assert record.checkpoint_sha256 == sha256_file(Path("runs", name, "7", "trained.safetensors"))
    assert record.machine["gpu"] is None and {"python", "torch", "numpy"} <= set(record.packages)
    text = Path("results", name, "7.json").read_text()
    assert str(project) not in text and str(Path.home()) not in text


def test_what_has_its_record_is_not_run_again(project: Path, capsys: Capture) -> None:
    assert main(["run", MINE, "--seeds", "1", "2", "--set", "show=2"]) == 0
    assert names("results") == ["mine/1.json", "mine/2.json"]
    before = Path("results/mine/1.json").read_bytes()
    shutil.rmtree("runs/mine/2")
    capsys.readouterr()
    assert main(["run", MINE, "--seeds", "1", "2", "--set", "show=2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("json exists: skipping this run\n") == 2 and "from step" not in printed
    assert "\n  slope                2.97\n" in printed and "\n  slope                2.95\n" in printed
    assert printed.count("  of 1") == 1, "of seed 2 nothing is left to show"
    assert Path("results/mine/1.json").read_bytes() == before

    (project / MINE).write_text((project / MINE).read_text() + "results: kept\n")
    shutil.move("results", "kept")
    assert main(["run", MINE]) == 0
    assert "; to train it yourself, copy the recipe without its line `results:`\n" in capsys.readouterr().out


def test_an_edited_recipe_meets_neither_the_old_record_nor_the_old_run(project: Path, capsys: Capture) -> None:
    assert main(["run", MINE]) == 0
    recipe = Path(MINE).read_text()
    Path(MINE).write_text(recipe.replace("lr: 0.1", "lr: 0.2"))
    capsys.readouterr()
    for path in ("results/mine/1.json", "runs/mine/1"):
        assert main(["run", MINE]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"rskip run: error: {path} was ")
        assert "train.lr: 0.1, now 0.2" in error and error.count("\n") == 1
        Path("results/mine/1.json").unlink(missing_ok=True)
    Path(MINE).write_text(recipe + "expected: {slope: 3}\ndescription: x\n")
    assert main(["run", MINE]) == 0


def test_a_training_that_fails_is_one_line_and_is_resumed_when_repeated(
    project: Path, line_fitting: Task[Any], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["run", MINE, "--set", "train.lr=100", "train.steps=50"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("rskip run: error: the weight is ") and error.count("\n") == 1
    assert not Path("results").exists()
    step, done = sys.modules["toy_task"].step, 0

    def interrupted(*arguments: Any) -> float:
        nonlocal done
        done += 1
        if done == 8:
            raise KeyboardInterrupt
        return float(step(*arguments))

    with monkeypatch.context() as patch:
        patch.setattr("toy_task.step", interrupted)
        assert main(["run", MINE]) == 130
    assert capsys.readouterr().err == "rskip run: interrupted; repeat the command to resume\n"
    assert main(["run", MINE]) == 0
    assert "from step 7\n" in capsys.readouterr().out
    assert read_record(Path("results/mine/1.json")).training["pieces"] == 2


def test_killed_at_any_rename_a_run_ends_in_the_same_record_when_it_is_repeated(
    project: Path, killed_at_rename: Callable[[int, list[str]], bool]
) -> None:
    run = ["run", MINE, "--set", "train.steps=2"]
    assert main(run) == 0
    (path,) = names("results")
    expected, at = figures(f"results/{path}"), 0
    while True:
        shutil.rmtree("results")
        shutil.rmtree("runs")
        if not killed_at_rename(at := at + 1, run):
            break
        assert not Path("results").exists() or main(["report"]) == 0, "a record is whole or absent"
        assert main(run) == 0
        assert figures(f"results/{path}") == expected, at
    assert at == 8, "owner.json, run.json, processes, precision, two steps, the record"


def test_mistakes_come_before_any_work(project: Path, line_fitting: Task[Any], capsys: Capture) -> None:
    Path("recipes/sweep.yaml").write_text(SWEEP)
    for arguments, message in [
        (["recipes/absent.yaml"], "no recipe recipes/absent.yaml"),
        ([MINE, "--set", "trian.lr=3"], "unknown key trian; did you mean train?"),
        ([MINE, "--set", "train.steps=0"], "train.steps is 0"),
        ([MINE, "--set", "train.lr={{lr}}"], "a key is a list or a mapping: expected a name"),
        ([MINE, "--seeds", "-1"], "-1"),
        ([MINE, "--seeds", "4294967296", "--dry-run"], "4294967296"),
        ([MINE, "--gpus", "99"], "99"),
        ([MINE, "--gpus", "-1", "--dry-run"], "-1"),
        ([MINE, "--variants", "fast"], "no variant fast; its variants: none, the file is one run"),
        (["recipes/sweep.yaml", "--variants", "fsat"], "no variant fsat (did you mean 'fast'?)"),
        (["recipes/sweep.yaml", "--set", "train.steps=0"], "recipes/sweep.yaml, variant fast: train.steps is 0"),
        ([MINE, "--set", "slope=1e9"], "the line is too steep"),
    ]:
        assert main(["run", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert names(".") == ["recipes/mine.yaml", "recipes/sweep.yaml"]


def test_without_variants_they_are_listed_with_what_is_done_and_what_is_missing(project: Path, capsys: Capture) -> None:
    Path("recipes/sweep.yaml").write_text(SWEEP)
    assert main(["run", "recipes/sweep.yaml", "--variants", "fast", "slow", "--seeds", "1", "2"]) == 0
    assert main(["run", "sweep/faster", "--seeds", "3"]) == 0, "an address is a recipe of its own"
    assert names("results") == ["sweep/fast/1.json", "sweep/fast/2.json", "sweep/faster/3.json",
                                "sweep/slow/1.json", "sweep/slow/2.json"]  # fmt: skip
    Path("results/sweep/slow/1.json").unlink()
    capsys.readouterr()
    before = names(".")
    assert main(["run", "recipes/sweep.yaml", "--seeds", "1", "2", "3"]) == 0
    assert capsys.readouterr().out == (
        "recipes/sweep.yaml has 3 variants; run them with --variants NAME ...\n"
        "  fast    seeds done: 1, 2; not run: 3   few steps\n"
        "  slow    seeds done: 2; not run: 1, 3   many\n"
        "  faster  seeds done: 3; not run: 1, 2\n"
    )
    assert main(["run", "recipes/sweep.yaml", "--set", "train.lr=0.2"]) == 0
    assert capsys.readouterr().out.count("seeds not run: 1") == 3, "with --set they are other runs"
    assert names(".") == before


def test_commands_are_those_of_the_missing_runs_and_a_slurm_array_runs_one_each(
    project: Path, root: Path, capsys: Capture
) -> None:
    Path("recipes/sweep.yaml").write_text(SWEEP)
    assert main(["run", "recipes/sweep.yaml", "--variants", "fast", "--seeds", "2"]) == 0
    capsys.readouterr()
    arguments = ["--variants", "f*", "--seeds", "1", "2", "--mirror", "a b", "--gpus", "3", "--set", "show=1"]
    assert main(["run", "recipes/sweep.yaml", *arguments, "--commands"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines() == [
        f"rskip run recipes/sweep.yaml --variants {variant} --seeds {seed} --set show=1 --gpus 3 --mirror 'a b'"
        for variant, seed in (("fast", 1), ("faster", 1), ("faster", 2))
    ]
    Path("commands.txt").write_text(printed)
    Path(".venv/bin").mkdir(parents=True)
    Path(".venv/bin/rskip").write_text('#!/bin/sh\nprintf "%s|" $OMP_NUM_THREADS "$@"\n')
    Path(".venv/bin/rskip").chmod(0o755)
    for number, output, status in (
        ("2", "4|run|recipes/sweep.yaml|--variants|faster|--seeds|1|--set|show=1|--gpus|3|--mirror|a b|", 0),
        ("4", "", 2),
    ):
        process = subprocess.run(
            ["bash", str(root / "scripts/slurm-array.sh"), "commands.txt"], capture_output=True, text=True,
            env={**os.environ, "SLURM_ARRAY_TASK_ID": number, "SLURM_CPUS_PER_TASK": "4"},
        )  # fmt: skip
        assert (process.stdout, process.returncode) == (output, status)
    assert process.stderr == "slurm-array.sh: error: commands.txt has no line 4: give --array=1-3\n"
