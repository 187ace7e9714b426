"""Publishes a finished run's weights to checkpoints/<run>/, as a model of checkpoints.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rskip.experiments.recipe import Recipe, load_recipe, results_folder
from rskip.experiments.runner import plan_runs
from rskip.files.checksum import sha256_file
from rskip.files.lock import one_at_a_time
from rskip.files.whole import recover, whole_folder
from rskip.machine.environment import gpus_to_use
from rskip.records import Record, read_record, read_run_records
from rskip.settings.errors import did_you_mean
from rskip.tasks import task_of_record
from rskip.zoo.publishing import (
    FOLDER,
    check_score,
    choose_name,
    find_entry,
    mismatch,
    outdated_tables,
    plan_entry,
    register,
    renewed,
)
from rskip.zoo.registry import ModelEntry


def records_seen(recipe: Recipe, seeds: Sequence[int]) -> list[Record]:
    """The records, in the current folder, of runs that other machines made.

    :raises FileNotFoundError: a record is missing. A network folder may show it later.
    """
    records = [record for record in read_run_records(recipe.run, Path(recipe.own.results)) if record.seed in seeds]
    if missing := [str(seed) for seed in seeds if seed not in {record.seed for record in records}]:
        of_seeds = f"seed{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise FileNotFoundError(
            f"{recipe.own.results}/{recipe.run} has no run record of {of_seeds} yet: a network folder may show it "
            "later; then repeat the command"
        )
    return records


def export_model(recipe: Recipe, records: Sequence[Record], *, mirror: str | None = None) -> Record:
    """Writes the weights of one seed, which the task chooses, to checkpoints/<run>/. Returns that seed's record.

    If the run has a model in checkpoints.json, the model is replaced. Otherwise checkpoints.json stays unchanged.

    :raises OSError, ValueError, CommandFailed: as `publish_model`.
    """
    record = recipe.task.work().choose(_scored(records))
    if find_entry(recipe.run) is None:
        with (
            one_at_a_time(FOLDER / recipe.run),
            _exported(recipe, record, mirror=mirror) as (_, record, score),
        ):
            check_score(score, record, recipe.task)
    else:
        publish_model(recipe.run, seed=record.seed, mirror=mirror)
    return record


def publish_model(
    run: str,
    *,
    seed: int | None = None,
    url: str | None = None,
    variant: str | None = None,
    mirror: str | None = None,
) -> ModelEntry:
    """Makes or replaces the model of a run. The current folder must be the project's.

    If the published weights match the model's entry, only the entry is renewed. The weights are published again if they
    are missing, are of another seed than `seed`, or if they or the run's record don't match the entry.

    :param seed: the seed whose weights are published; None: the published one, otherwise the task chooses.
    :param url: address of a folder that also serves the files; None: unchanged.
    :param variant: last part of the model's name; None: unchanged.
    :param mirror: folder or URL of the dataset, for scoring.
    :raises FileNotFoundError: the run, seed or recipe doesn't exist, or files of the run are missing.
    :raises ValueError: a path instead of a name, the user's own data, files that
        don't match the run's record, or a worse score after reading the weights back. Weights and
        checkpoints.json then stay as they were.
    :raises CommandFailed: scoring the weights failed. Everything then stays as it was.
    """
    _check_run(run)
    folder, results, entry = FOLDER / run, results_folder(run), find_entry(run)
    if folder.parent.is_dir():  # otherwise there is nothing to recover, and the lock would create the folder
        with one_at_a_time(folder):
            recover(folder)
    outdated_tables(Path())
    records = read_run_records(run, results)
    name = {"url": url, "variant": variant}
    if records:
        task = task_of_record(records[0])
        task.work().check_publishable(records[0])
        name = choose_name(run, task, overrides=records[0].overrides, config=records[0].config, **name)
    wrong = None if entry is None else mismatch(entry, records)
    if entry is not None and wrong is None and seed in (None, entry.seed):
        renewed_entry = renewed(entry, records, **name)
        register(renewed_entry)
        return renewed_entry
    kept = entry.seed if entry is not None and any(record.seed == entry.seed for record in records) else None
    try:
        recipe, record = _run_to_publish(run, records, kept if seed is None else seed)
        with one_at_a_time(FOLDER / recipe.run):
            with _exported(recipe, record, mirror=mirror) as (building, record, score):
                records = read_run_records(recipe.run, Path(recipe.own.results))
                entry = plan_entry(building, record, records, score=score, **name)  # refuses invalid models
            register(entry)
        return entry
    except (ValueError, FileNotFoundError) as error:
        if wrong is None:
            raise
        raise ValueError(
            f"{wrong}: restore {folder} and {results / run} from version control, or publish the run again, which "
            f"fails now: {error}"
        ) from error


def _scored(records: Sequence[Record]) -> list[Record]:
    """:raises ValueError: all of them diverged."""
    scored = [record for record in records if not record.diverged]
    if records and not scored:
        seeds = ", ".join(str(record.seed) for record in records)
        raise ValueError(f"{records[0].path.parent}: training diverged (seed {seeds}), so it has no weights to publish")
    return scored


def _run_to_publish(run: str, records: Sequence[Record], seed: int | None) -> tuple[Recipe, Record]:
    chosen = _scored([record for record in records if seed in (None, record.seed)])
    if not chosen:
        of_seed = "" if seed is None else f" of seed {seed}"
        seeds = "" if seed is None else f" --seeds {seed}"
        results = results_folder(run)
        near = did_you_mean(run, {path.parent.relative_to(results).as_posix() for path in results.rglob("*.json")})
        problem = f"{results / run} has no run record{of_seed if records else near}"
        raise FileNotFoundError(f"{problem}: first run it with `rskip run RECIPE{seeds}`")
    record = task_of_record(chosen[0]).work().choose(chosen)
    overrides = [f"{key}={json.dumps(value)}" for key, value in record.overrides.items()]
    try:
        recipe = load_recipe(record.address, overrides=overrides)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no recipe {record.address}, which {record.path} needs: restore it, or go to the project's folder"
        ) from None
    recipe.check_record(record)
    return recipe, record


@contextmanager
def _exported(recipe: Recipe, record: Record, *, mirror: str | None) -> Iterator[tuple[Path, Record, float]]:
    """Yields the folder with a run's weights, the run's present record, and the main metric of the weights.

    The folder becomes checkpoints/<run> if the block succeeds.
    """
    ((_, run),) = plan_runs([recipe], seeds=[record.seed], mirror=mirror, gpus=gpus_to_use(None))
    work = recipe.task.work()
    trained = work.scored_file(run)
    record = read_record(record.path)
    if not trained.is_file() or sha256_file(trained) != record.checkpoint_sha256:
        raise ValueError(f"{trained} is missing or doesn't match {record.path}: remove both and run the recipe again")
    with whole_folder(FOLDER / recipe.run) as building:
        yield building, record, work.export_weights(run, record, building)[recipe.task.columns[0].metric]


def _check_run(run: str) -> None:
    """:raises ValueError: the text is not the address of a run."""
    if not re.fullmatch(r"[\w.-]*\w(/\w[\w.-]*)?", run):
        raise ValueError(f"{run!r} is not a run: expected an address, such as multi30k_en_de/sas")
