"""A finished run's weights in checkpoints/<run>/, and as a model of the registry, checkpoints.json."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rskip.experiments.recipe import Recipe, load_recipe, results_folder
from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.whole import recover, whole_folder
from rskip.machine.environment import gpus_to_use
from rskip.records import Record, read_record, read_run_records
from rskip.settings.errors import did_you_mean
from rskip.tasks import task_of_record
from rskip.tasks.run import Run
from rskip.zoo.publishing import (
    RECORD,
    changed_file,
    check_figure,
    check_size,
    choose_name,
    mismatch,
    outdated_tables,
    plan_entry,
    register,
)
from rskip.zoo.registry import WEIGHTS, ModelEntry


def records_seen(recipe: Recipe, seeds: Sequence[int]) -> list[Record]:
    """The records, in the current folder, of runs that other machines made.

    :raises FileNotFoundError: a record is missing. A network folder may show it later.
    """
    records = [record for record in read_run_records(recipe.run, Path(recipe.own.results)) if record.seed in seeds]
    if missing := [str(seed) for seed in seeds if seed not in {record.seed for record in records}]:
        of_seeds = f"seed{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise FileNotFoundError(
            f"{recipe.own.results}/{recipe.run} shows no record of {of_seeds}: a network folder may show it later; "
            "repeat the command then"
        )
    return records


def publish_weights(recipe: Recipe, records: Sequence[Record], *, mirror: str | None = None) -> Record:
    """Publishes one of the recipe's runs, as its task chooses, to `checkpoints/<run>/`; returns its record.

    :raises FileNotFoundError: the run's files are gone.
    :raises ValueError: they are not those of its record, take too many bytes, or do worse when read back. What was
        published before is there as it was.
    :raises CommandFailed: scoring the weights failed, likewise.
    """
    return _publish(recipe, recipe.task.choose(_scored(records)), mirror=mirror)


def publish_model(
    run: str,
    *,
    seed: int | None = None,
    url: str | None = None,
    variant: str | None = None,
    mirror: str | None = None,
) -> ModelEntry:
    """Makes or replaces the model of a run, in the current folder, which is the project's.

    Its weights are those in checkpoints/<run>/. Where there are none, or of another seed than `seed`, or they or their
    record differ from the run's records, they are published again first.

    :param seed: whose weights; None: the published ones', else as the task chooses.
    :param url: base address where the files are served too; None: as it was.
    :param variant: last part of the model's name; None: as it was.
    :param mirror: where the dataset is, for scoring.
    :raises FileNotFoundError: no such run, seed or recipe.
    :raises ValueError: a path in place of a name; what can't be published. Weights, records and registry are then as
        they were.
    :raises CommandFailed: scoring the weights failed, likewise.
    """
    _check_run(run)
    folder = Path("checkpoints", run)
    if folder.parent.is_dir():  # else there is nothing to recover, and the lock would make it
        with one_at_a_time(folder):
            recover(folder)
    outdated_tables(Path())  # says so before anything is replaced, where one can't be filled in
    results = results_folder(run)
    records = read_run_records(run, results)
    url, variant = choose_name(run, records, url=url, variant=variant)
    wrong = None
    if (folder / RECORD).is_file():
        wrong = mismatch(folder, records) or changed_file(run)
    published = _published_seed(folder, records)
    if published is None or wrong or seed not in (None, published):
        try:
            recipe, record = _run_to_publish(run, records, published if seed is None else seed)
            _publish(recipe, record, mirror=mirror, url=url, variant=variant, register=True)
        except (ValueError, FileNotFoundError) as error:
            if wrong is None:
                raise
            raise ValueError(
                f"{wrong}: restore checkpoints/{run} and {results / run} from version control, or publish the run "
                f"again, which fails now: {error}"
            ) from error
    return register(run, read_run_records(run, results), url=url, variant=variant)


def _scored(records: Sequence[Record]) -> list[Record]:
    """:raises ValueError: all of them diverged."""
    scored = [record for record in records if not record.diverged]
    if records and not scored:
        seeds = ", ".join(str(record.seed) for record in records)
        raise ValueError(f"{records[0].path.parent}: the training of seed {seeds} diverged: there are no weights")
    return scored


def _run_to_publish(run: str, records: Sequence[Record], seed: int | None) -> tuple[Recipe, Record]:
    chosen = _scored([record for record in records if seed in (None, record.seed)])
    if not chosen:
        of_seed = "" if seed is None else f" of seed {seed}"
        seeds = "" if seed is None else f" --seeds {seed}"
        folder = results_folder(run) / run
        raise FileNotFoundError(f"{folder} has no record{of_seed}: run it first, `rskip run RECIPE{seeds}`")
    record = task_of_record(chosen[0]).choose(chosen)
    overrides = [f"{key}={json.dumps(value)}" for key, value in record.overrides.items()]
    try:
        recipe = load_recipe(record.address, overrides=overrides)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no recipe {record.address}, the one of {record.path}: put it there, or go to the project's folder"
        ) from None
    recipe.check_record(record)
    return recipe, record


def _publish(
    recipe: Recipe,
    record: Record,
    *,
    mirror: str | None,
    url: str | None = None,
    variant: str | None = None,
    register: bool = False,
) -> Record:
    """Writes the weights and the record.

    :param register: whether they are to be a model of the registry: what that refuses is refused before anything is
        replaced.
    """
    run = Run(
        name=recipe.run, seed=record.seed, settings=recipe.settings, mirror=mirror, gpus=gpus_to_use(None)
    )
    folder = Path("checkpoints", recipe.run)
    with one_at_a_time(folder):
        record = read_record(record.path)
        others = [each for each in read_run_records(run.name, Path(recipe.own.results)) if each.seed != run.seed]
        without = [msgspec.structs.replace(other, published=None) for other in others]
        with whole_folder(folder) as building:
            published = _export(recipe, run, record, building)
            published.write(building / RECORD)
            if register:
                plan_entry(building, run.name, [*without, published], url=url, variant=variant)
        for other, unpublished in zip(others, without, strict=True):
            if other.published:
                unpublished.write(other.path)
        published.write(published.path)
        return published


def _export(recipe: Recipe, run: Run[Any], record: Record, building: Path) -> Record:
    """Fills the folder; returns the record with `published` filled in."""
    task, trained = recipe.task, recipe.task.scored_file(run)
    if not trained.is_file():
        raise FileNotFoundError(f"{trained} is gone: remove {record.path} and run the recipe again to publish it")
    if sha256_file(trained) != record.checkpoint_sha256:
        raise ValueError(f"{trained} is not the file of {record.path}: remove both and run again")
    figures = task.export_weights(run, record, building)
    weights = building / WEIGHTS
    check_size(weights, task.published_dtype)
    file = {
        "file": weights.name,
        "dtype": task.published_dtype,
        "bytes": weights.stat().st_size,
        "sha256": sha256_file(weights),
    }
    published = msgspec.structs.replace(record, published={**file, **figures})
    check_figure(published, task)
    return published


def _check_run(run: str) -> None:
    """Refuses what is no run's address."""
    if not re.fullmatch(r"[\w.-]*\w(/\w[\w.-]*)?", run):
        raise ValueError(f"{run!r} is no run: expected its address, such as multi30k_en_de/sas")
    results = results_folder(run)
    runs = {path.parent.relative_to(results).as_posix() for path in results.rglob("*.json")}
    if run not in runs and (near := did_you_mean(run, runs)):
        raise FileNotFoundError(f"{results / run} has no record{near}: give a run that has, or run it first")


def _published_seed(folder: Path, records: Sequence[Record]) -> int | None:
    """The seed of the published record, where the run has a record of that seed."""
    try:
        seed = read_record(folder / RECORD).seed
    except (FileNotFoundError, ValueError):
        return None
    return seed if any(record.seed == seed for record in records) else None
