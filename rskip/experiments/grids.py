"""Tables of recipes whose variants are a grid: lines are names of the last mapping but one, columns of the last.

`field_cifar10` shows the variants of recipes/field_cifar10.yaml, which have two parts; `field/6x6` those of
recipes/field.yaml that begin with 6x6. A cell is the score by which its task ranks, over the seeds; lines are sorted by
their best cell. A cell is compared with the cell of the same setting in the file's first line, if both have two or
more seeds. A line may show further values, such as costs (`FurtherValues`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol

from rskip.experiments.comparisons import (
    COMPARED,
    SEEDS,
    Line,
    compare_lines,
    comparison_cells,
    comparison_notes,
    plain_numbers,
    records_by_run,
    run_command,
)
from rskip.experiments.recipe import Recipe, written_path
from rskip.records import Record
from rskip.records.record import run_address
from rskip.records.tables import Table, summarise
from rskip.settings.user_dir import suggested_command
from rskip.tasks import Column, Task

RISEN = 1.0  # a training whose loss ends so much above its lowest counts as diverged


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One variant's records. `ended`: those that didn't diverge; `figures`: their scores that rank the variant."""

    recipe: Recipe
    records: tuple[Record, ...]
    ended: tuple[Record, ...]
    figures: tuple[float, ...]

    @property
    def diverged(self) -> int:
        """How many seeds did."""
        return len(self.records) - len(self.ended)

    @property
    def order(self) -> tuple[bool, int, float]:
        """The smaller, the better: what diverged with a seed after what never did, what has no record last."""
        return not self.records, self.diverged, fmean(self.figures) if self.figures else math.inf

    def __str__(self) -> str:
        said = [f"{summarise(self.figures)} ({len(self.figures)})"] if self.figures else []
        if self.diverged:
            said.append("diverged" if len(self.records) == 1 else f"{self.diverged} diverged")
        return ", ".join(said)


class FurtherValues(Protocol):
    """Further values for the lines of a grid, such as the costs of their connections."""

    def figures(self, line: Recipe, grid: Recipe) -> Mapping[str, float | None]:
        """The values by heading, for the first recipe of a line and of the grid. Every line has the same headings."""

    def note(self, grid: Recipe, headings: Collection[str]) -> str:
        """A note that explains the given headings, as far as they are its own."""


class Grids:
    """The grids of a project, from all recipes and run records. Records with overrides are ignored."""

    def __init__(
        self, recipes: Iterable[Recipe], records: Iterable[Record], further: FurtherValues | None = None
    ) -> None:
        self._further = further
        self.of_table: dict[str, list[Recipe]] = {}
        for recipe in recipes:
            if len(recipe.parts) > 1:
                name = run_address(recipe.path.stem, "_".join(recipe.parts[:-2]) or None)
                self.of_table.setdefault(name, []).append(recipe)
        self._records = records_by_run(records)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tables."""
        return tuple(self.of_table)

    def table(self, name: str) -> Table:
        """The table of this name. It leaves out rows and columns without run records, except the baseline's row.

        :raises ValueError: a record was made with other settings than its variant has now.
        """
        task, lines = self.of_table[name][0].task, self.lines(name)
        ran = [line for line in lines if any(cell.records for cell in line)]
        baseline = self.of_table[name][0].parts[-2]
        ordered = [line for line in lines if line in ran or line[0].recipe.parts[-2] == baseline] if ran else lines
        lasts = [cell.recipe.parts[-1] for cell in ordered[0]]
        ranked, main = ranked_by(task), task.columns[0]
        columns = {
            "variant": [line[0].recipe.parts[-2] for line in ordered],
            **{last: [str(line[at]) for line in ordered] for at, last in enumerate(lasts)},
        }
        compared = _compare(ordered, baseline, ranked)
        columns |= _comparison_columns(ordered, compared)
        if main != ranked:
            columns[f"{main.heading} there"] = [_mean(_best(line), main.metric) for line in ordered]
        further = [self.figures(name, line[0].recipe) for line in ordered]
        columns |= {heading: [_shown(figures[heading]) for figures in further] for heading in further[0]}
        kept = [heading for heading, column in columns.items() if any(column) or (not ran and heading in lasts)]
        cells = [cell for line in ordered for cell in line]
        notes = _notes(cells, ranked.heading)
        if idle := [line[0].recipe.parts[-2] for line in lines if line not in ordered]:
            notes.append(f"No run record yet: {', '.join(idle)}.")
        notes += comparison_notes(list(compared.values()), baseline=f"{baseline} in the same column")
        if self._further is not None and further[0].keys() & set(kept):
            notes.append(self._further.note(self.of_table[name][0], kept))
        places = {
            cell.recipe.address: (at, kept.index(cell.recipe.parts[-1]))
            for at, line in enumerate(ordered) for cell in line if cell.recipe.parts[-1] in kept
        }  # fmt: skip
        return Table(
            name=name,
            title=name,
            headings=kept,
            rows=[list(row) for row in zip(*(columns[heading] for heading in kept), strict=True)],
            bold=[
                *(places[cell.recipe.address] for cell in map(_best, ordered) if cell),
                *(
                    (places[address][0], kept.index(_at(COMPARED[0], line.recipe)))
                    for address, line in compared.items()
                    if line.shown
                ),
            ],
            records={places[cell.recipe.address]: cell.records for cell in cells if cell.records},
            notes=notes,
            commands=_commands([cell for line in lines for cell in line]),
            numbers=[
                {**plain_numbers(compared.get(cell.recipe.address, _line(cell, ranked))), **figures}
                for line, figures in zip(ordered, further, strict=True)
                for cell in line
            ],
        )

    def figures(self, name: str, line: Recipe) -> Mapping[str, float | None]:
        """The further values of a line, given its first recipe."""
        return {} if self._further is None else self._further.figures(line, self.of_table[name][0])

    def lines(self, name: str) -> list[list[Cell]]:
        """Its cells by line, the best line first."""
        lines: dict[str, list[Cell]] = {}
        for recipe in self.of_table[name]:
            lines.setdefault(recipe.parts[-2], []).append(self._cell(recipe, ranked_by(recipe.task).metric))
        return sorted(lines.values(), key=lambda line: min(cell.order for cell in line))

    def _cell(self, recipe: Recipe, metric: str) -> Cell:
        records = tuple(self._records.get(recipe.address, ()))
        for record in records:
            recipe.check_record(record)
        ended = tuple(record for record in records if metric in record.metrics and not _rose(record, metric))
        return Cell(recipe=recipe, records=records, ended=ended, figures=tuple(each.metrics[metric] for each in ended))


def ranked_by(task: Task[Any]) -> Column:
    """What its settings are chosen by."""
    return task.ranked_by or task.columns[0]


def _rose(record: Record, metric: str) -> bool:
    """Whether the curve of what it is ranked by ends high above its lowest point."""
    curve = [epoch[metric] for epoch in record.curve if epoch.get(metric) is not None]
    return bool(curve) and curve[-1] > min(curve) + RISEN


def _best(line: Sequence[Cell]) -> Cell | None:
    cells = [cell for cell in line if cell.figures]
    return min(cells, key=lambda cell: cell.order) if cells else None


def _compare(lines: Sequence[Sequence[Cell]], baseline: str, ranked: Column) -> dict[str, Line]:
    """Cells with two seeds or more, like the baseline's of the same setting, by the variant's address."""
    base = next(line for line in lines if line[0].recipe.parts[-2] == baseline)
    found = []
    for line in lines:
        for cells in zip(line, base, strict=True):
            ours, theirs = (_line(cell, ranked) for cell in cells)
            if line is not base and len(ours.values) > 1 and len(theirs.values) > 1:
                found.append(replace(ours, baseline=theirs))
    return {line.recipe.address: line for line in compare_lines(found) if line.difference}


def _line(cell: Cell, ranked: Column) -> Line:
    return Line(
        recipe=cell.recipe,
        metric=ranked.metric,
        measure=ranked.heading,
        paper=(),
        records=cell.ended,
        missing=() if cell.records else SEEDS[:1],
    )


def _comparison_columns(lines: Sequence[Sequence[Cell]], compared: Mapping[str, Line]) -> dict[str, list[str]]:
    """Those of the settings in which cells were compared."""
    columns: dict[str, list[str]] = {}
    for cells in zip(*lines, strict=True):
        found = [compared.get(cell.recipe.address) for cell in cells]
        if any(found):
            rows = [comparison_cells(line) if line else ("",) * len(COMPARED) for line in found]
            for heading, column in zip(COMPARED, zip(*rows, strict=True), strict=True):
                columns[_at(heading, cells[0].recipe)] = list(column)
    return columns


def _at(heading: str, recipe: Recipe) -> str:
    return f"{heading}, {recipe.parts[-1]}"


def _mean(cell: Cell | None, metric: str) -> str:
    values = [record.metrics[metric] for record in cell.ended if metric in record.metrics] if cell else []
    return str(summarise(values)) if values else ""


def _shown(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2f}"


def _notes(cells: Sequence[Cell], ranked: str) -> list[str]:
    records = [record for cell in cells for record in cell.records]
    if not records:
        return ["No variant has a run record yet."]
    cells_are = f"Cells: {ranked}, mean ± sample standard deviation (seeds)."
    notes = [f"{cells_are} Best row first; best value of each row in bold."]
    if any(cell.diverged for cell in cells):
        notes.append(
            "Diverged: a loss, gradient or weight was not finite, or the loss ended more than "
            f"{RISEN:g} above its lowest; means and differences leave such seeds out."
        )
    if any(len(cell.figures) == 1 for cell in cells):
        notes.append("Cells with one seed don't rank variants.")
    precisions = sorted({record.precision or "not recorded" for record in records})
    if len(precisions) > 1:
        notes.append(f"Computed in {' and '.join(precisions)}: don't compare cells of two precisions.")
    signatures = dict.fromkeys(signature for record in records for signature in record.signatures.items())
    main = cells[0].recipe.task.columns[0]
    notes += [f"{main.heading}: `{signature}`." for metric, signature in signatures if metric == main.metric]
    return notes


def _commands(cells: Sequence[Cell]) -> list[str]:
    """What fills the empty cells, a column at a time; a pattern where most are empty: `run` passes by what is there."""
    of_column: dict[str, list[Cell]] = {}
    for cell in cells:
        of_column.setdefault(cell.recipe.parts[-1], []).append(cell)
    commands = []
    for last, column in of_column.items():
        missing = [cell.recipe for cell in column if not cell.records]
        if 2 * len(missing) > len(column):
            pattern = "_".join([*missing[0].parts[:-2], "*", last])
            commands.append(suggested_command("rskip", "run", written_path(missing[0].path), "--variants", pattern))
        elif missing:
            commands.append(run_command(missing[0].path, missing, SEEDS[:1]))
    return commands
