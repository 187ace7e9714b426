"""The weights of a finished run in checkpoints/, one seed of a run at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rskip.experiments.kinds import KINDS
from rskip.experiments.recipe import Recipe, load_recipe
from rskip.experiments.record import Record, read_run_records
from rskip.experiments.recorded_settings import check_settings
from rskip.files.lock import one_at_a_time
from rskip.files.whole import whole_folder

Check = Callable[[Path, Sequence[Record]], object]


def publish_one(recipe: Recipe, records: Sequence[Record], *, mirror: str | None = None) -> Record:
    """Publishes one of the recipe's runs to `checkpoints/<run>/`; returns its record."""
    return _publish(recipe, seed=KINDS[recipe.kind].to_publish(records).seed, mirror=mirror)


def publish_run(run: str, *, seed: int | None = None, mirror: str | None = None, check: Check | None = None) -> Record:
    """Publishes a finished run, whose recipe is in recipes/, to `checkpoints/<run>/`; returns its record.

    :param seed: whose weights; None: as the kind of run chooses.
    :param check: is called with the folder that is to be published and the records that the run will have, and raises
        where they must not be.
    :raises FileNotFoundError: no such run, seed or recipe, or the run's files are gone.
    :raises ValueError: the recipe says other settings now; what the kind's `fill` refuses. What was published before
        is there as it was.
    :raises CommandFailed: scoring the weights failed, likewise.
    """
    chosen = [record for record in read_run_records(run) if seed in (None, record.seed)]
    if not chosen:
        of_seed = "" if seed is None else f" of seed {seed}"
        seeds = "" if seed is None else f" --seeds {seed}"
        raise FileNotFoundError(f"results/{run} has no record{of_seed}: run it first, `rskip run RECIPE{seeds}`")
    record = KINDS[chosen[0].kind].to_publish(chosen)
    path = Path("recipes", f"{record.recipe}.yaml")
    if not path.is_file():
        raise FileNotFoundError(f"no {path}, the recipe of {record.path}: put it there, or go to the project's folder")
    recipe = load_recipe(path, overrides=[f"{key}={json.dumps(value)}" for key, value in record.overrides.items()])
    check_settings(record, recipe)
    return _publish(recipe, seed=record.seed, mirror=mirror, check=check)


def _publish(recipe: Recipe, *, seed: int, mirror: str | None, check: Check | None = None) -> Record:
    folder = Path("checkpoints", recipe.run_name)
    with one_at_a_time(folder):
        others = [record for record in read_run_records(recipe.run_name) if record.seed != seed]
        with whole_folder(folder) as building:
            published = KINDS[recipe.kind].fill(building, recipe, seed=seed, mirror=mirror)
            published.write(building / "record.json")
            if check is not None:
                check(building, [*(dataclasses.replace(other, published=None) for other in others), published])
        for other in others:
            if other.published:
                dataclasses.replace(other, published=None).write(other.path)
        published.write(published.path)
        return published
