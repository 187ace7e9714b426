"""The results of a project: its consistent run records, and the tables made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rskip.experiments.comparisons import SEEDS, Comparisons
from rskip.experiments.grids import FurtherValues, Grids
from rskip.experiments.recipe import all_recipes, read_recipes, with_baseline
from rskip.records import RESULTS, Record, read_records
from rskip.records.tables import Table
from rskip.settings.errors import SettingError, did_you_mean
from rskip.tasks import task_of_record

_ROUNDING = 1e-4


@dataclass(frozen=True)
class Results:
    """A project's records and tables. comparisons: the papers' tables and those of recipes."""

    records: Sequence[Record]
    comparisons: Comparisons
    grids: Grids

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tables that compare."""
        return (*self.comparisons.names, *self.grids.names)

    def table(self, name: str, *, seeds: Sequence[int] = SEEDS) -> Table:
        """The table of this name.

        :param seeds: the seeds that every variant of a comparison should have.
        :raises SettingError: the table doesn't exist.
        :raises ValueError: a record was made with other settings than its variant has now, or SciPy is missing.
        """
        if name in self.grids.names:
            return self.grids.table(name)
        if name in self.comparisons.known:
            return self.comparisons.table(name, seeds=seeds)
        known = list(dict.fromkeys((*self.comparisons.known, *self.grids.names)))
        recipe, slash, _ = name.partition("/")
        if slash and recipe in known and not any(each.startswith(f"{recipe}/") for each in known):
            raise SettingError("", f"no table {name}; try `rskip report {recipe}`, which has the recipe's variants")
        listed = ", ".join(known) or "none, because recipes/ holds no recipe; give the path of a recipe"
        raise SettingError("", f"no table {name}{did_you_mean(name, known)}; the tables: {listed}")


def read_results(
    root: Path,
    *,
    files: Sequence[Path] = (),
    further: FurtherValues | None = None,
    baselines: Mapping[str, str] | None = None,
) -> Results:
    """The results of a project.

    :param files: recipes outside recipes/, which replace those of the same name.
    :param further: further values for the lines of grids.
    :param baselines: other baselines than the recipes' own, by the name of the recipe's file.
    :raises FileNotFoundError: there is no results folder, and no file is given.
    :raises ValueError: a recipe or run record is wrong, scores in a run record were edited, or two files have one name.
    """
    named: dict[str, Path] = {}
    for file in files:
        if (other := named.setdefault(file.stem, file)) != file:
            raise SettingError("", f"{other} and {file} have the same name", advice="report one of them at a time")
    given = [recipe for file in named.values() for recipe in read_recipes(file)]
    recipes = [*(recipe for recipe in all_recipes(root) if recipe.path.stem not in named), *given]
    for name, baseline in (baselines or {}).items():
        recipes = with_baseline(recipes, name, baseline)
    folders = [root / RESULTS, *(root / recipe.own.results for recipe in recipes)]
    if not files and not any(folder.is_dir() for folder in folders):
        advice = "run a recipe here first, or give its file"
        raise FileNotFoundError(f"no run records in {root.resolve() / RESULTS}: {advice}")
    records = [record for folder in dict.fromkeys(folders) for record in read_records(folder)]
    records.sort(key=lambda record: (record.run, record.seed))
    for record in records:
        check_agreement(record)
    return Results(records, Comparisons(recipes, records), Grids(recipes, records, further))


def check_agreement(record: Record) -> None:
    """:raises SettingError: a score contradicts the record's curve or other values."""
    for metric, implied in task_of_record(record).implied_figures(record).items():
        figure = record.metrics.get(metric)
        if figure is not None and implied is not None and not abs(figure - implied) <= _ROUNDING:
            raise SettingError.of_value(
                f"metrics.{metric}",
                figure,
                f"{implied:.4f}, as its curve or its other scores imply",
                advice="run records must not be edited: restore it, or remove it and run again",
                source=str(record.path),
            )
