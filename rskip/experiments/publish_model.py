"""A finished run as a model of the registry, checkpoints.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rskip.experiments.publish_run import publish_run
from rskip.experiments.record import Record, read_record, read_run_records
from rskip.files.lock import one_at_a_time
from rskip.files.whole import recover
from rskip.settings.nearest import did_you_mean
from rskip.zoo.entry import ModelEntry
from rskip.zoo.entry_of_record import RECORD, mismatch
from rskip.zoo.publish import changed_file, choose_name, outdated_tables, plan_entry, publish


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
    record are not as one of the run's records tells, they are published again first.

    :param seed: whose weights; None: the published ones', else as the kind of run chooses.
    :param url: base address where the files are served too; None: as it was.
    :param variant: last part of the model's name; None: as it was.
    :param mirror: where the dataset is, for scoring.
    :raises FileNotFoundError: no such run, seed or recipe.
    :raises ValueError: a path in place of a name; what can't be published. Weights, records and registry are then as
        they were.
    :raises CommandFailed: scoring the weights failed, likewise.
    """
    _check_run(run)
    root, folder = Path(), Path("checkpoints", run)
    if folder.parent.is_dir():  # else there is nothing to recover, and the lock would make it
        with one_at_a_time(folder):
            recover(folder)
    outdated_tables(root)  # says so before anything is replaced, where one can't be filled in
    records = read_run_records(run)
    url, variant = choose_name(run, _plain(records), root=root, url=url, variant=variant)
    wrong = None
    if (folder / RECORD).is_file():
        wrong = mismatch(folder, _plain(records)) or changed_file(run, root=root)
    published = _published_seed(folder, records)
    if published is None or wrong or seed not in (None, published):
        try:
            publish_run(
                run,
                seed=published if seed is None else seed,
                mirror=mirror,
                check=lambda building, after: plan_entry(
                    building, run, _plain(after), root=root, url=url, variant=variant
                ),
            )
        except (ValueError, FileNotFoundError) as error:
            if wrong is None:
                raise
            raise ValueError(
                f"{wrong}: restore checkpoints/{run} and results/{run} from version control, or publish the run again, "
                f"which fails now: {error}"
            ) from error
    return publish(run, _plain(read_run_records(run)), root=root, url=url, variant=variant)


def _check_run(run: str) -> None:
    """Refuses what names no folder right in results/."""
    if run in ("", "..") or Path(run).name != run:
        raise ValueError(f"{run!r} is no run: expected the name of a folder in results/, such as multi30k_en_de_sas")
    runs = {path.parent.name for path in Path("results").glob("*/*.json")}
    if run not in runs and (near := did_you_mean(run, runs)):
        raise FileNotFoundError(f"results/{run} has no record{near}: give a run that has, or run it first")


def _published_seed(folder: Path, records: Sequence[Record]) -> int | None:
    """The seed of the published record, where the run has a record of that seed."""
    try:
        seed = read_record(folder / RECORD).seed
    except (FileNotFoundError, ValueError):
        return None
    return seed if any(record.seed == seed for record in records) else None


def _plain(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(record) for record in records]
