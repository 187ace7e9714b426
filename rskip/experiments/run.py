"""Running a recipe: one record a seed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rskip.experiments.config_difference import config_difference
from rskip.experiments.environment import gpus_to_use
from rskip.experiments.kinds import KINDS
from rskip.experiments.process import executable
from rskip.experiments.recipe import Recipe, load_recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.summary import next_steps, summarise


def run_recipe(
    recipe: Recipe, *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> list[Record]:
    """Runs the recipe once a seed, in the current folder, and returns the records in the seeds' order.

    A run that has its record is not run again, one that was stopped goes on. gpus: how many train it, 0 for the CPU;
    one where there is one, unless given. Raises ValueError, FileNotFoundError, or CommandFailed, each with one line.
    """
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed {seed} is out of range: expected 0 to {2**32 - 1}")
    gpus = gpus_to_use(gpus)
    kind = KINDS[recipe.kind]
    kind.check(recipe, gpus=gpus)
    records = [_run_seed(recipe, seed=seed, mirror=mirror, gpus=gpus) for seed in seeds]
    print(next_steps(records[-1], kind.places(records[-1])), flush=True)
    return records


def publish_one(recipe: Recipe, records: Sequence[Record], *, mirror: str | None = None) -> Record:
    """Publishes one of the recipe's runs to `checkpoints/<run>/`; returns its record."""
    kind = KINDS[recipe.kind]
    return kind.publish(recipe, seed=kind.to_publish(records).seed, mirror=mirror)


def publish_run(run: str, records: Sequence[Record], *, seed: int | None, mirror: str | None = None) -> Record:
    """Publishes a finished run, whose recipe is in recipes/, to `checkpoints/<run>/`; returns its record.

    :param records: of the run's seeds.
    :param seed: whose weights; None: as the kind of run chooses.
    :raises FileNotFoundError: no such run, seed or recipe, or the run's files are gone.
    :raises ValueError: the recipe says other settings now; what the kind's `publish` refuses.
    """
    chosen = [record for record in records if seed in (None, record.seed)]
    if not chosen:
        of_seed = "" if seed is None else f" of seed {seed}"
        seeds = "" if seed is None else f" --seeds {seed}"
        raise FileNotFoundError(f"results/{run} has no record{of_seed}: run it first, `rskip run RECIPE{seeds}`")
    record = KINDS[chosen[0].kind].to_publish(chosen)
    overrides = [f"{key}={json.dumps(value)}" for key, value in record.overrides.items()]
    recipe = load_recipe(Path("recipes", f"{record.recipe}.yaml"), overrides=overrides)
    _check_settings(record, recipe, folder=RunFolder.of(run, record.seed))
    return KINDS[recipe.kind].publish(recipe, seed=record.seed, mirror=mirror)


def print_commands(
    recipe: Recipe, *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> None:
    """Prints the commands that `run_recipe` stands for, one a line, as a shell takes them.

    gpus: how many; this machine need not have them.
    """
    if gpus is None or gpus < 0:
        gpus = gpus_to_use(gpus)
    for command in KINDS[recipe.kind].commands(recipe, seeds=seeds, mirror=mirror, gpus=gpus):
        print(shlex.join(command))


def _run_seed(recipe: Recipe, *, seed: int, mirror: str | None, gpus: int) -> Record:
    path, kind = record_path(recipe.run_name, seed), KINDS[recipe.kind]
    folder = RunFolder.of(recipe.run_name, seed)
    if path.exists():
        record = _existing_record(path, recipe, folder=folder)
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


def _existing_record(path: Path, recipe: Recipe, *, folder: RunFolder) -> Record:
    record = read_record(path)
    _check_settings(record, recipe, folder=folder)
    print(f"{path} is there already: not run again")
    return record


def _check_settings(record: Record, recipe: Recipe, *, folder: RunFolder) -> None:
    """:raises ValueError: the recipe says other settings than the record."""
    if record.config != recipe.config:
        raise ValueError(
            f"{record.path} was made with other settings ({config_difference(record.config, recipe.config)}): "
            f"for another run give the change with --set, or remove {record.path} and {folder.path}"
        )
