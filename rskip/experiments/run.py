"""Running a recipe: one record a seed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rskip.experiments.commands import average_command, generate_command, prepare_command, train_command
from rskip.experiments.config_difference import config_difference
from rskip.experiments.data_folder import data_folder, ensure_data
from rskip.experiments.environment import gpus_to_use
from rskip.experiments.process import executable
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record, read_record, record_path
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.summary import next_steps, show_translations, summarise
from rskip.experiments.tokens_per_update import plan_batches
from rskip.experiments.training_precision import choose_precision
from rskip.experiments.translation_record import translation_record
from rskip.experiments.translation_run import average, generate, train
from rskip.experiments.translations import read_translations


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
    plan_batches(recipe.settings.train, gpus=gpus)  # what can't be divided is refused here, before any work
    records = [_run_seed(recipe, seed=seed, mirror=mirror, gpus=gpus) for seed in seeds]
    print(next_steps(records[-1]), flush=True)
    return records


def _run_seed(recipe: Recipe, *, seed: int, mirror: str | None, gpus: int) -> Record:
    path = record_path(recipe.run_name, seed)
    folder = RunFolder(Path("runs", recipe.run_name, str(seed)))
    if path.exists():
        record = _existing_record(path, recipe, folder=folder)
    else:
        record = _train_and_score(recipe, seed=seed, folder=folder, mirror=mirror, gpus=gpus)
        record.write(path)
    print(summarise(record, recipe))
    data, split = data_folder(recipe.settings), recipe.settings.evaluate.split
    if recipe.show and folder.generated(split).exists() and data.exists():
        print(
            show_translations(read_translations(folder.generated(split), data=data, split=split), recipe.show)
        )
    sys.stdout.flush()
    return record


def _existing_record(path: Path, recipe: Recipe, *, folder: RunFolder) -> Record:
    record = read_record(path)
    if record.config != recipe.config:
        raise ValueError(
            f"{path} was made with other settings ({config_difference(record.config, recipe.config)}): "
            f"for another run give the change with --set, or remove {path} and {folder.path}"
        )
    print(f"{path} is there already: not run again")
    return record


def _train_and_score(
    recipe: Recipe, *, seed: int, folder: RunFolder, mirror: str | None, gpus: int
) -> Record:
    for command in ("fairseq-train", "fairseq-generate"):
        executable(command)
    settings = recipe.settings
    with folder.lock() as lock:
        folder.bind(recipe.config)
        data = ensure_data(settings, mirror=mirror)
        print(f"{recipe.run_name}, seed {seed}", flush=True)
        train(settings, seed=seed, folder=folder, data=data, gpus=gpus, lock=lock)
        average(settings, folder=folder)
        generated = generate(settings, folder=folder, data=data, gpus=gpus)
        translations = read_translations(generated, data=data, split=settings.evaluate.split)
        return translation_record(recipe, seed=seed, folder=folder, data=data, scores=translations.score())


def print_commands(
    recipe: Recipe, *, seeds: Sequence[int], mirror: str | None = None, gpus: int | None = None
) -> None:
    """Prints the commands that `run_recipe` stands for, one a line, as a shell takes them.

    gpus: how many; this machine need not have them.
    """
    settings = recipe.settings
    if gpus is None or gpus < 0:
        gpus = gpus_to_use(gpus)
    data, precision = data_folder(settings), choose_precision(settings.train, gpus=gpus)
    commands = [prepare_command(settings, data=data, mirror=mirror)]
    for seed in seeds:
        folder = RunFolder(Path("runs", recipe.run_name, str(seed)))
        commands += [
            train_command(
                settings, data=data, checkpoints=folder.checkpoints, seed=seed, gpus=gpus, precision=precision
            ),
            average_command(settings, checkpoints=folder.checkpoints, output=folder.averaged),
            generate_command(settings, data=data, checkpoint=folder.averaged, gpu=gpus > 0),
        ]
    for command in commands:
        print(shlex.join(command))
