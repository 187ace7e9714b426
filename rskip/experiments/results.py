"""Reads the results of a project, and makes the tables of all its runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from rskip.experiments.comparisons import SEEDS, ComparisonTable, comparison_table
from rskip.experiments.grids import grid_table
from rskip.experiments.recipe import Recipe, all_recipes, read_recipes, with_baseline
from rskip.records import RESULTS, Record, check_run, read_records
from rskip.records.record import run_address
from rskip.records.tables import Table, markdown_table, markdown_text, summarise
from rskip.settings.errors import SettingError, did_you_mean
from rskip.tasks import Column, dataset_of_record, task_of_record, tasks

NO_RECORDS = "No run records yet.\n"


class Results:
    """The tables of a project: the papers', those of recipes, and those of grids (`rskip.experiments.grids`).

    :param recipes: the variants of the project's recipes.
    :param records: the run records. Tables leave out those with overrides.

    names: the tables that compare: the papers', those of recipes with a baseline, and those of grids. of_papers: the
    papers'. grids: the variants of each grid. runs: run records by address.
    """

    def __init__(self, recipes: Sequence[Recipe], records: Sequence[Record]) -> None:
        self.recipes, self.records = recipes, records
        self.grids: dict[str, list[Recipe]] = {}
        self._of_table: dict[str, list[Recipe]] = {}
        self._titles: dict[str, str] = {}
        of_files: dict[str, list[Recipe]] = {}
        for recipe in recipes:
            of_files.setdefault(recipe.path.stem, []).append(recipe)
            for title in dict.fromkeys(table for figure in recipe.paper for table in figure.tables):
                self._titles.setdefault(_slug(title), title)
                self._of_table.setdefault(_slug(title), []).append(recipe)
            if len(recipe.parts) > 1:
                name = run_address(recipe.path.stem, "_".join(recipe.parts[:-2]) or None)
                self.grids.setdefault(name, []).append(recipe)
        self.of_papers = tuple(sorted(self._of_table, key=_natural))
        self._of_table = of_files | self._of_table
        compared = [name for name, variants in of_files.items() if any(recipe.baseline for recipe in variants)]
        self.names = tuple(dict.fromkeys((*self.of_papers, *compared, *self.grids)))
        self.runs: dict[str, list[Record]] = {}
        for record in records:
            if not record.overrides:
                self.runs.setdefault(record.run, []).append(record)

    def table(self, name: str, *, seeds: Sequence[int] = SEEDS) -> Table:
        """The table of this name; a grid's if it is also a recipe's.

        :param seeds: the seeds that every variant of a comparison should have.
        :raises SettingError: the table doesn't exist.
        :raises ValueError: a record was made with other settings than its variant has now, or SciPy is missing.
        """
        if name in self.grids:
            return grid_table(name, self.grids[name], self.runs)
        return self.comparison(name, seeds=seeds)

    def comparison(self, name: str, *, seeds: Sequence[int] = SEEDS) -> ComparisonTable:
        """The table of a paper, or of a recipe; see `table`."""
        if name not in self._of_table:
            known = list(dict.fromkeys((*self.names, *self._of_table)))
            listed = ", ".join(known) or "none, because recipes/ holds no recipe; give the path of a recipe"
            raise SettingError("", f"no table {name}{did_you_mean(name, known)}; the tables: {listed}")
        title = self._titles.get(name)
        return comparison_table(name, self._of_table[name], self.runs, title=title, seeds=seeds)


def _slug(title: str) -> str:
    return re.sub(r"\s+", "-", title.strip().lower())


def _natural(name: str) -> tuple[Any, ...]:
    """rSkip's before SAS's, tables before sections and footnotes, by number."""
    paper, _, rest = name.partition("-")
    return paper, "table" not in rest, [int(number) for number in re.findall(r"\d+", rest)]


def read_results(
    root: Path, *, files: Sequence[Path] = (), baselines: Mapping[str, str] | None = None
) -> Results:
    """The results of a project.

    :param files: recipes outside recipes/, which replace those of the same name.
    :param baselines: other baselines than the recipes' own, by the name of the recipe's file.
    :raises FileNotFoundError: there is no results folder, and no file is given.
    :raises ValueError: a recipe or run record is wrong, or two files have one name.
    """
    named: dict[str, Path] = {}
    for file in files:
        if (other := named.setdefault(file.stem, file)) != file:
            raise ValueError(f"{other} and {file} have the same name: report one of them at a time")
    given = [recipe for file in named.values() for recipe in read_recipes(file)]
    recipes = [*(recipe for recipe in all_recipes(root) if recipe.path.stem not in named), *given]
    for name, baseline in (baselines or {}).items():
        recipes = with_baseline(recipes, name, baseline)
    folders = [root / RESULTS, *(root / recipe.own.results for recipe in recipes)]
    if not files and not any(folder.is_dir() for folder in folders):
        advice = "run a recipe here first, or give its file"
        raise FileNotFoundError(f"no run records in {root.resolve() / RESULTS}: {advice}")
    # one folder may lie in another
    found = {record.path.resolve(): record for folder in dict.fromkeys(folders) for record in read_records(folder)}
    return Results(recipes, sorted(found.values(), key=lambda record: (record.run, record.seed)))


def overview(records: Iterable[Record]) -> str:
    """The tables of all runs, one per dataset that they were scored on. Your own data is told apart by its content."""
    by_data: dict[str, list[Record]] = {}
    for record in records:
        name, config = dataset_of_record(record), record.config
        own = name.startswith("own-") and "data_sha256" in config
        told = f"{name}, {config['data']} ({config['data_sha256'][:8]})" if own else name
        by_data.setdefault(told, []).append(record)
    parts = [f"## {markdown_text(name)}\n\n{results_table(by_data[name])}" for name in sorted(by_data)]
    return "\n".join(parts) or NO_RECORDS


def results_table(records: Iterable[Record]) -> str:
    """A table of the runs, with the signatures of its scores below; `NO_RECORDS` if there are no runs.

    A score is the mean ± the sample standard deviation over the run's seeds, or the score of one seed.

    :raises ValueError: a run's records were made with different settings or scorers.
    """
    runs = [list(group) for _, group in groupby(records, key=lambda record: record.run)]
    for run in runs:
        check_run(run)
    if not runs:
        return NO_RECORDS
    columns = [
        (task.name, column)
        for task in tasks().values()
        for column in task.shown
        if any(run[0].kind == task.name and any(column.metric in record.metrics for record in run) for run in runs)
    ]
    headings = [column.heading for _, column in columns]
    rows = [
        [
            run_label(run[0]),
            f"{run[0].parameters:,}",
            ", ".join(str(record.seed) for record in run),
            *(_figure(run, column) if run[0].kind == kind else "" for kind, column in columns),
            f"{fmean(record.training['seconds'] for record in run) / 60:.0f}",
            "; ".join(dict.fromkeys(machine_label(record.machine) for record in run)),
        ]
        for run in runs
    ]
    table = markdown_table(["run", "parameters", "seeds", *headings, "training, minutes", "machine"], rows)
    return "\n".join([table, "", *_notes(runs), ""])


def _figure(run: Sequence[Record], column: Column) -> str:
    values = [record.metrics[column.metric] for record in run if column.metric in record.metrics]
    diverged = sum(record.diverged for record in run)
    said = [f"{diverged} diverged" if len(run) > 1 else "diverged"] if diverged else []
    if values:
        said.insert(0, f"{summarise(values)} ({'one seed' if len(values) == 1 else f'{len(values)} seeds'})")
    return ", ".join(said)


def run_label(record: Record) -> str:
    """The name of the recipe, and the overridden settings."""
    changes = ", ".join(f"{key}={value}" for key, value in record.overrides.items())
    return f"{record.address} with {changes}" if changes else record.address


def machine_label(machine: Mapping[str, Any]) -> str:
    """The GPUs, or the CPU and its threads."""
    if machine.get("gpu"):
        count = machine.get("gpus", 1)
        return f"{count} × {machine['gpu']}" if count > 1 else str(machine["gpu"])
    return f"{machine['cpu']}, {machine['threads']} thread{'s' if machine['threads'] != 1 else ''}"


def _notes(runs: Sequence[Sequence[Record]]) -> list[str]:
    notes = []
    if any(len(run) > 1 for run in runs):
        notes.append("± is the sample standard deviation over seeds.")
    signed: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        for key in dict.fromkeys(pair for record in run for pair in record.signatures.items()):
            signed.setdefault(key, []).append(run[0])
    for (metric, signature), firsts in signed.items():
        others = any(m == metric and s != signature for m, s in signed)
        of = f" of {', '.join(map(run_label, firsts))}" if others else ""
        heading = task_of_record(firsts[0]).headings.get(metric, metric)
        notes.append(f"{heading}{of}: `{signature}`.")
    return ["  \n".join(map(markdown_text, notes))] if notes else []
