"""Tables of recipes whose variants are a grid: lines are names of the last mapping but one, columns of the last.

`field_cifar10` shows the variants of recipes/field_cifar10.yaml, which have two parts; `field/6x6` those of
recipes/field.yaml that begin with 6x6. A cell is the score by which its task ranks, over the seeds; lines are sorted by
their best cell. A cell is compared with the cell of the same setting in the file's first line, if both have two or
more seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from rskip.experiments.comparisons import (
    COMPARED,
    SEEDS,
    Line,
    commands,
    compare_lines,
    comparison_cells,
    legend,
    plain_numbers,
    seeds_needed,
)
from rskip.experiments.recipe import Recipe
from rskip.records import Record
from rskip.records.tables import Table, summarise
from rskip.tasks import Column, Task

_LOSSES = "valid_loss", "test_loss"  # a curve has one of them
RISEN = 1.0  # a training whose loss ends so much above its lowest counts as diverged
_CELLS = (
    "Cells: {}, mean ± sample standard deviation (seeds). Best row first; best value of each row in bold. Cells with "
    "one seed don't rank variants. Diverged: a loss, gradient or weight was not finite, or the loss ended more than "
    f"{RISEN:g} above its lowest; means and differences leave such seeds out."
)


@dataclass(frozen=True, kw_only=True)
class Cell(Line):
    """The scores that rank a variant. `records`: those of seeds that didn't diverge; `ran`: all of them."""

    ran: tuple[Record, ...]

    @property
    def setting(self) -> str:
        """The name of its column."""
        return self.recipe.parts[-1]

    @property
    def diverged(self) -> int:
        """How many seeds did."""
        return len(self.ran) - len(self.records)

    @property
    def order(self) -> tuple[bool, int, float]:
        """The smaller, the better: what diverged with a seed after what never did, what has no record last."""
        return not self.ran, self.diverged, fmean(self.values.values()) if self.values else math.inf

    def __str__(self) -> str:
        said = [f"{self.ours} ({len(self.values)})"] if self.values else []
        if self.diverged:
            said.append("diverged" if len(self.ran) == 1 else f"{self.diverged} diverged")
        return ", ".join(said)


def grid_table(name: str, recipes: Sequence[Recipe], runs: Mapping[str, Sequence[Record]]) -> Table:
    """The table of a grid. It leaves out rows and columns without run records, except the baseline's row.

    :param runs: run records by address.
    :raises ValueError: a record was made with other settings than its variant has now.
    """
    first, lines = recipes[0], grid_lines(recipes, runs)
    ranked, main, baseline = ranked_by(first.task), first.task.columns[0], first.parts[-2]
    ran = [_name(line) for line in lines if any(cell.ran for cell in line)]
    ordered = _compared([line for line in lines if not ran or _name(line) in (*ran, baseline)], baseline)
    cells = [cell for line in ordered for cell in line]
    columns: dict[str, Sequence[str]] = {"variant": list(map(_name, ordered))}
    settings = list(zip(*ordered, strict=True))
    columns |= {column[0].setting: list(map(str, column)) for column in settings}
    for column in settings:
        if any(cell.difference for cell in column):
            compared = zip(*map(comparison_cells, column), strict=True)
            columns |= {_at(name, column[0]): each for name, each in zip(COMPARED, compared, strict=True)}
    if main != ranked:
        columns[f"{main.heading} there"] = [_mean(_best(line), main.metric) for line in ordered]
    always = [] if ran else [column[0].setting for column in settings]
    kept = [heading for heading, column in columns.items() if any(column) or heading in always]
    notes = _notes(cells, ranked.heading)
    if ran and len(ordered) < len(lines):
        there = list(map(_name, ordered))
        notes.append(f"No run record yet: {', '.join(each for each in map(_name, lines) if each not in there)}.")
    bold = [(at, kept.index(best.setting)) for at, line in enumerate(ordered) if (best := _best(line))]
    bold += [(at, kept.index(_at(COMPARED[0], c))) for at, line in enumerate(ordered) for c in line if c.shown]
    return Table(
        name=name,
        title=name,
        headings=kept,
        rows=[list(row) for row in zip(*(columns[heading] for heading in kept), strict=True)],
        bold=bold,
        notes=[*notes, *seeds_needed(cells)],
        legend=legend(cells)[1:],
        commands=commands([cell for line in lines for cell in line]),
        numbers=[plain_numbers(cell) for cell in cells],
    )


def grid_lines(recipes: Iterable[Recipe], runs: Mapping[str, Sequence[Record]]) -> list[list[Cell]]:
    """A grid's cells by line, the best line first.

    :raises ValueError: a record was made with other settings than its variant has now.
    """
    lines: dict[str, list[Cell]] = {}
    for recipe in recipes:
        ran, ranked = tuple(runs.get(recipe.address, ())), ranked_by(recipe.task)
        recipe.check_records(ran)
        cell = Cell(
            recipe=recipe,
            metric=ranked.metric,
            measure=ranked.heading,
            paper=(),
            records=tuple(each for each in ran if ranked.metric in each.metrics and not _rose(each)),
            missing=() if ran else SEEDS[:1],
            ran=ran,
        )
        lines.setdefault(recipe.parts[-2], []).append(cell)
    return sorted(lines.values(), key=lambda line: min(cell.order for cell in line))


def ranked_by(task: Task[Any]) -> Column:
    """What its settings are chosen by."""
    return task.ranked_by or task.columns[0]


def _rose(record: Record) -> bool:
    """Whether the curve of the loss on held-out data ends high above its lowest point."""
    curve = [point[loss] for point in record.curve for loss in _LOSSES if point.get(loss) is not None]
    return bool(curve) and curve[-1] > min(curve) + RISEN


def _name(line: Sequence[Cell]) -> str:
    return line[0].recipe.parts[-2]


def _at(heading: str, cell: Cell) -> str:
    return f"{heading}, {cell.setting}"


def _best(line: Sequence[Cell]) -> Cell | None:
    return min((cell for cell in line if cell.values), key=lambda cell: cell.order, default=None)


def _compared(lines: Sequence[Sequence[Cell]], baseline: str) -> list[list[Cell]]:
    """The lines, with the differences of cells with two seeds or more, like the baseline's cell of the same setting."""
    base = next(line for line in lines if _name(line) == baseline)
    compared = compare_lines(
        [
            replace(cell, baseline=theirs)
            if line is not base and min(len(cell.values), len(theirs.values)) > 1
            else cell
            for line in lines
            for cell, theirs in zip(line, base, strict=True)
        ]
    )
    return [compared[start : start + len(base)] for start in range(0, len(compared), len(base))]


def _mean(cell: Cell | None, metric: str) -> str:
    values = [record.metrics[metric] for record in cell.records if metric in record.metrics] if cell else []
    return str(summarise(values)) if values else ""


def _notes(cells: Sequence[Cell], ranked: str) -> list[str]:
    records = [record for cell in cells for record in cell.ran]
    if not records:
        return ["No variant has a run record yet."]
    notes = [_CELLS.format(ranked)]
    precisions = sorted({record.precision or "not recorded" for record in records})
    if len(precisions) > 1:
        notes.append(f"Computed in {' and '.join(precisions)}: don't compare cells of two precisions.")
    signatures = dict.fromkeys(signature for record in records for signature in record.signatures.items())
    main = cells[0].recipe.task.columns[0]
    return notes + [f"{main.heading}: `{signature}`." for metric, signature in signatures if metric == main.metric]
