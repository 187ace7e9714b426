"""Running a recipe: one record a seed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rskip.experiments.kinds import KINDS
from rskip.experiments.process import executable
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.recorded_settings import check_settings
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.summary import next_steps, summarise
from rskip.machine.environment import gpus_to_use


def run_recipe(
    recipe: Recipe, *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> list[Record]:
    """Runs the recipe once a seed, in the current folder, and returns the records in the seeds' order.

    A run that has its record is not run again, one that was stopped goes on. gpus: how many train it, 0 for the CPU;
    one where there is one, unless given. Raises ValueError, FileNotFoundError, or CommandFailed, each with one line.
    """
    _check_seeds(seeds)
    gpus = gpus_to_use(gpus)
    kind = KINDS[recipe.kind]
    kind.check(recipe, gpus=gpus)
    records = [_run_seed(recipe, seed=seed, mirror=mirror, gpus=gpus) for seed in seeds]
    print(next_steps(records[-1], kind.places(records[-1])), flush=True)
    return records


def print_commands(
    recipe: Recipe, *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> None:
    """Prints the commands that `run_recipe` stands for, one a line, as a shell takes them.

    gpus: how many; this machine need not have them. Raises ValueError where there is no such seed.
    """
    _check_seeds(seeds)
    if gpus is None or gpus < 0:
        gpus = gpus_to_use(gpus)
    for command in KINDS[recipe.kind].commands(recipe, seeds=seeds, mirror=mirror, gpus=gpus):
        print(shlex.join(command))


def _check_seeds(seeds: Sequence[int]) -> None:
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed {seed} is out of range: expected 0 to {2**32 - 1}")


def _run_seed(recipe: Recipe, *, seed: int, mirror: str | None, gpus: int) -> Record:
    path, kind = record_path(recipe.run_name, seed), KINDS[recipe.kind]
    folder = RunFolder.of(recipe.run_name, seed)
    if path.exists():
        record = _existing_record(path, recipe)
    else:
        for program in kind.programs:
            executable(program)
        with folder.lock() as lock:
            folder.bind(recipe.config)
            record = kind.train_and_score(recipe, seed=seed, folder=folder, mirror=mirror, gpus=gpus, lock=lock)
        record.write(path)
    print(summarise(record, recipe), flush=True)
    if recipe.show and (examples := kind.examples(recipe, folder=folder)):
        print(examples, flush=True)
    return record


def _existing_record(path: Path, recipe: Recipe) -> Record:
    record = read_record(path)
    check_settings(record, recipe)
    print(f"{path} is there already: not run again")
    return record
