"""Tables of recipes whose rows are a grid: a line for each name of the last mapping but one, a column of the last.

`field_cifar10` is of the rows of recipes/field_cifar10.yaml, which have two parts; `field_6x6` of those of
recipes/field.yaml that begin with 6x6. A cell is the figure that its task ranks by, over the seeds; lines stand by
their best cell. Where the project has counted what a row's connection costs (`rskip.experiments.costs`), that stands
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rskip.experiments.costs import BESIDE, Costs
from rskip.experiments.recipe import RowOutline
from rskip.experiments.tables import SEEDS, check_written, records_of_rows, run_command
from rskip.records import Record
from rskip.records.tables import Table, summarise
from rskip.tasks.run import flat_config

RISEN = 1.0  # a training whose loss ends so much above its lowest is taken to have diverged


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row's records.

    :param ended: those that didn't diverge.
    :param figures: theirs that the row is ranked by.
    """

    row: RowOutline
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


class Grids:
    """The grids of a project's recipes.

    :param rows: of all recipes.
    :param records: all of results/; those with overrides are left out.
    """

    def __init__(self, rows: Iterable[RowOutline], records: Iterable[Record], costs: Costs) -> None:
        self._costs = costs
        self._rows: dict[str, list[RowOutline]] = {}
        for row in rows:
            if len(row.parts) > 1:
                self._rows.setdefault("_".join([row.path.stem, *row.parts[:-2]]), []).append(row)
        self._records = records_of_rows(records)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tables."""
        return tuple(self._rows)

    def table(self, name: str) -> Table:
        """The table of this name.

        :raises ValueError: a record was made with other settings than its row has now.
        """
        rows = self._rows[name]
        task, lasts = rows[0].task, list(dict.fromkeys(row.parts[-1] for row in rows))
        ranked, main = task.ranked_by or task.columns[0], task.columns[0]
        lines: dict[str, list[Cell]] = {}
        for row in rows:
            lines.setdefault(row.parts[-2], []).append(self._cell(row, ranked.metric))
        ordered = sorted(lines.values(), key=lambda line: min(cell.order for cell in line))
        columns = {
            "row": [line[0].row.parts[-2] for line in ordered],
            **{last: [str(line[at]) for line in ordered] for at, last in enumerate(lasts)},
        }
        if main != ranked:
            columns[f"{main.heading} there"] = [_mean(_best(line), main.metric) for line in ordered]
        costs = [self._costs.beside(task.kind, _connection(line[0].row)) for line in ordered]
        columns |= {name: [cost[at] for cost in costs] for at, name in enumerate(BESIDE)}
        kept = [heading for heading, column in columns.items() if heading in ("row", *lasts) or any(column)]
        cells = [cell for line in ordered for cell in line]
        notes = _notes(cells, ranked.heading)
        if BESIDE.keys() & set(kept):
            notes.append(self._costs.note(task.kind, kept))
        places = {cell.row.name: (at, 1 + last) for at, line in enumerate(ordered) for last, cell in enumerate(line)}
        return Table(
            name=name,
            title=name,
            headings=kept,
            rows=[list(row) for row in zip(*(columns[heading] for heading in kept), strict=True)],
            bold=[places[cell.row.name] for cell in map(_best, ordered) if cell],
            records={places[cell.row.name]: cell.records for cell in cells if cell.records},
            notes=notes,
            commands=_commands(cells),
        )

    def _cell(self, row: RowOutline, metric: str) -> Cell:
        records = tuple(self._records.get(row.name, ()))
        for record in records:
            check_written(record, row)
        ended = tuple(record for record in records if metric in record.metrics and not _rose(record, metric))
        return Cell(row=row, records=records, ended=ended, figures=tuple(each.metrics[metric] for each in ended))


def _rose(record: Record, metric: str) -> bool:
    """Whether the curve of what it is ranked by ends high above its lowest point."""
    curve = [epoch[metric] for epoch in record.curve if epoch.get(metric) is not None]
    return bool(curve) and curve[-1] > min(curve) + RISEN


def _best(line: Sequence[Cell]) -> Cell | None:
    cells = [cell for cell in line if cell.figures]
    return min(cells, key=lambda cell: cell.order) if cells else None


def _mean(cell: Cell | None, metric: str) -> str:
    values = [record.metrics[metric] for record in cell.ended if metric in record.metrics] if cell else []
    return str(summarise(values)) if values else ""


def _connection(row: RowOutline) -> str:
    """What it is called where costs are counted: the spec, and a value residual beside it."""
    train = flat_config(row.written)
    values = train.get("train.value-residual")
    return f"{train.get('train.connection', '')}{f' value-residual={values}' if values else ''}"


def _notes(cells: Sequence[Cell], ranked: str) -> list[str]:
    records = [record for cell in cells for record in cell.records]
    if not records:
        return ["No row has a record yet."]
    notes = [f"Cells: {ranked}, mean ± sample standard deviation (seeds); the best first, and of a line in bold."]
    if any(cell.diverged for cell in cells):
        notes.append(
            "Diverged: a loss, gradient or weight was not finite, or the loss ended more than "
            f"{RISEN:g} above its lowest; such seeds are in no mean."
        )
    if any(len(cell.figures) == 1 for cell in cells):
        notes.append("One seed is no comparison.")
    precisions = sorted({str(record.training.get("precision") or "not recorded") for record in records})
    if len(precisions) > 1:
        notes.append(f"Computed in {' and '.join(precisions)}: cells of two precisions are no comparison.")
    signatures = dict.fromkeys(signature for record in records for signature in record.signatures.items())
    main = cells[0].row.task.columns[0]
    notes += [f"{main.heading}: `{signature}`." for metric, signature in signatures if metric == main.metric]
    return notes


def _commands(cells: Sequence[Cell]) -> list[str]:
    """What fills the empty cells, a column at a time, by a pattern where a whole column is empty."""
    of_column: dict[str, list[Cell]] = {}
    for cell in cells:
        of_column.setdefault(cell.row.parts[-1], []).append(cell)
    commands = []
    for last, column in of_column.items():
        missing = [cell.row for cell in column if not cell.records]
        if missing and len(missing) == len(column):
            pattern = "_".join([*missing[0].parts[:-2], "*", last])
            commands.append(f"rskip run recipes/{missing[0].path.name} --rows '{pattern}'")
        elif missing:
            commands.append(run_command(missing[0].path, missing, SEEDS[:1]))
    return commands
