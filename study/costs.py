"""The costs of connections in training, from benchmarks/connection_cost.py.

For each value of a connection, the last line that contains it in the benchmark's file counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from rskip.experiments.recipe import Recipe
from rskip.records.tables import Table
from rskip.settings.text import read_text
from rskip.tasks.run import flat_config

FILE = Path("study", "results", "benchmarks", "connection_cost.jsonl")
PREFIX = "connection_cost_"  # of its tables' names; the name of the model (its task) follows
COSINE = "cosine"
HEADINGS = {  # headings and their meanings; all but COSINE are relative to the baseline
    "time": "time per update",
    "calls": "operator calls",
    "memory": "memory kept for the backward pass",
    COSINE: "mean cosine similarity between two positions of a sentence after the untrained encoder",
}


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The model for comparing connections, and the baseline connection."""

    description: str
    baseline: str


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """One connection in one model. Times that were not measured yet are None.

    :param kept_megabytes: memory that a forward pass keeps for the backward pass, on a CPU in float32.
    :param update_ratio: time of an update relative to the baseline, on a CPU.
    :param alike: mean cosine similarity between two positions of a sentence after the untrained encoder, or None.
    """

    model: str
    connection: str
    kept_megabytes: float
    calls_forward: int
    megabytes_forward: float
    calls_backward: int
    megabytes_backward: float
    update_ratio: float | None = None
    alike: float | None = None

    @property
    def calls(self) -> int:
        """Operator calls per step."""
        return self.calls_forward + self.calls_backward


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    date: str
    models: dict[str, Model]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Costs:
    """The costs of a project's connections, for the lines of grids.

    :param of: costs by model and connection.
    :param dates: the date of each model's last line.
    """

    models: Mapping[str, Model] = field(default_factory=dict)
    of: Mapping[str, Mapping[str, Cost]] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(PREFIX + model for model in self.models)

    def figures(self, line: Recipe, grid: Recipe) -> dict[str, float | None]:
        """The values of a line's connection, by the headings in HEADINGS; None if unknown."""
        return self._figures(self._model(grid), _connection(line))

    def added(self, table: Table, grid: Sequence[Recipe] | None) -> Table:
        """The table of a grid with columns for the costs that are known; another table stays as it is."""
        if not grid:
            return table
        of = {each.parts[-2]: self.figures(each, grid[0]) for each in grid}
        kept = [heading for heading in HEADINGS if any(of[row[0]][heading] is not None for row in table.rows)]
        rows = [[*row, *(_shown(of[row[0]][heading]) for heading in kept)] for row in table.rows]
        legend = [*table.legend, *([self._note(self._model(grid[0]), kept)] if kept else [])]
        return replace(table, headings=[*table.headings, *kept], rows=rows, legend=legend)

    def _figures(self, model: str, connection: str) -> dict[str, float | None]:
        if model not in self.models or connection not in self.of[model]:
            return dict.fromkeys(HEADINGS)
        cost, base = (self.of[model][each] for each in (connection, self.models[model].baseline))
        calls, memory = cost.calls / base.calls, cost.kept_megabytes / base.kept_megabytes
        return {"time": cost.update_ratio, "calls": calls, "memory": memory, COSINE: cost.alike}

    def _texts(self, model: str, connection: str) -> dict[str, str]:
        return {name: _shown(figure) for name, figure in self._figures(model, connection).items()}

    def table(self, name: str) -> Table:
        """One model's table: the baseline first, the others by their time."""
        model = name.removeprefix(PREFIX)
        base = self.models[model].baseline
        shown = ["time", "memory"]
        headings = ["connection", "calls", "MB moved", *(f"{each} ×" for each in shown)]
        rows = [
            [
                f"`{cost.connection}`",
                f"{cost.calls:,}",
                f"{cost.megabytes_forward + cost.megabytes_backward:,.0f}",
                *(self._texts(model, cost.connection)[each] for each in shown),
            ]
            for cost in sorted(
                self.of[model].values(), key=lambda cost: (cost.connection != base, cost.update_ratio or math.inf)
            )
        ]
        kept = [at for at in range(len(headings)) if any(row[at] for row in rows)]
        headings = [headings[at] for at in kept]
        measured = [each for each in shown if f"{each} ×" in headings]
        return Table(
            name=name,
            title=name,
            headings=headings,
            rows=[[row[at] for at in kept] for row in rows],
            notes=[f"{self._note(model, measured)} Last measured {self.dates[model][:10]}."],
        )

    def times(self, name: str) -> str:
        """One model's times and memory as a sentence."""
        table = self.table(name)
        return ", ".join(f"{row[0]} {row[-2]} ({row[-1]})" for row in table.rows) + f".\n\n{table.notes[0]}\n"

    def _model(self, grid: Recipe) -> str:
        """The model whose costs a grid shows: the one with the grid's layers if there is one, otherwise its task's."""
        train = flat_config(grid.written)
        keys = ("train.encoder-layers", "train.decoder-layers", "train.layers", "train.depth")
        layers = "x".join(str(train[key]) for key in keys if key in train)
        own = f"{grid.task.name}_{layers}"
        return own if own in self.models else grid.task.name

    def _note(self, model: str, headings: Collection[str]) -> str:
        named = [words for heading, words in HEADINGS.items() if heading in headings and heading != COSINE]
        listed = " and ".join(each for each in (", ".join(named[:-1]), named[-1]) if each)
        cosine = f" {COSINE.capitalize()}: {HEADINGS[COSINE]}." if COSINE in headings else ""
        baseline, description = self.models[model].baseline, self.models[model].description
        are = "are" if len(named) > 1 else "is"
        return f"{listed[0].upper()}{listed[1:]} {are} relative to `{baseline}`.{cosine} Measured in a {description}."


def _shown(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2f}"


def _connection(recipe: Recipe) -> str:
    """Its name in the benchmark's file: the spec, and the value residual if there is one."""
    train = flat_config(recipe.written)
    values = train.get("train.value-residual")
    return f"{train.get('train.connection', '')}{f' value-residual={values}' if values else ''}"


def read_costs(root: Path) -> Costs:
    """The project's costs; empty without the benchmark's file."""
    if not (path := root / FILE).is_file():
        return Costs()
    models: dict[str, Model] = {}
    dates: dict[str, str] = {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for text in read_text(path).splitlines():
        line = msgspec.json.decode(text, type=_Line)
        models |= line.models
        dates |= dict.fromkeys(line.models, line.date)
        for row in line.rows:
            cost = found.setdefault(row["model"], {}).setdefault(row["connection"], {})
            cost |= row
    costs = {model: {name: msgspec.convert(cost, Cost) for name, cost in of.items()} for model, of in found.items()}
    return Costs(models, costs, dates)
