"""Figures of grids, of training times and of differences from a baseline, which only the project's own studies have.

A grid's figure shows one point per seed and the connection's cost, or a map of means.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rskip.analysis import figures
from rskip.analysis.figures import (
    COLOUR_MAP,
    COLOURS,
    MARKERS,
    Chart,
    Row,
    View,
    chart,
    choose_kind,
    chosen,
    label_decades,
    spans_decade,
    word,
)
from rskip.analysis.measurement import Measurement, Value
from rskip.analysis.registry import Kind
from rskip.experiments.grids import grid_lines, ranked_by
from rskip.experiments.results import Results
from rskip.settings.errors import SettingError
from study.costs import Costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE, _CELL, _AROUND = 0.17, 0.32, 0.9  # inches: heights of a line of points, a cell, and the margins
_OF_TIMES, _TITLE = 3.6, 0.4  # inches: a figure of times, and a panel's title of several lines
_APART = 0.03  # distance between marks of diverged seeds, as a part of the panel's width
_NARROW = 14  # characters of a line below a narrow panel
_DIFFERENCES = {  # the colours of a difference's line and of its circle
    "lower in the same time too": (COLOURS[0], COLOURS[0]), "lower per update": (COLOURS[0], "white"),
    "not detected": ("0.5", "white"), "higher": (COLOURS[1], COLOURS[1]),
}  # fmt: skip
_DARK = 0.5  # a cell's text is white up to this part of the colour scale
_KINDS: dict[str, tuple[Kind, ...]] = {  # the default first
    "grid": ("dots", "cells"), "times": ("times",), "differences": ("differences",),
}  # fmt: skip


def chart_of(measurement: Measurement, view: View) -> Chart:
    """The chart of a measurement that the view selects: `chart`, also of a grid or of training times.

    :raises SettingError: as `chart`.
    """
    if measurement.analysis not in _KINDS:
        return chart(measurement, view)
    kind = choose_kind(_KINDS[measurement.analysis], measurement, view)
    rows = chosen([dict(row) for row in measurement.rows], view)
    if kind == "times":
        return Chart(kind, rows, "time", "value", ("quantity",), (), line="model")
    if kind == "differences":
        return Chart(kind, rows, "value", "model", ("quantity",), (), marker="found")
    trained = {row["model"] for row in rows if row["seed"] is not None}
    if not trained:
        raise SettingError("", "nothing is left to draw", expected="a record that matches the choice")
    if kind == "cells":
        return Chart(kind, _cells(rows), "setting", "model", (), ("quantity",), colour="value")
    rows = [row for row in rows if row["model"] in trained]
    return Chart(kind, rows, "value", "model", ("quantity",), (), marker="setting")


def draw_chart(shown: Chart, path: Path, **options: Any) -> None:
    """`rskip.analysis.figures.draw_chart`, also for grids and training times."""
    models, quantities = (len(_in_order(shown.rows, key)) for key in ("model", "quantity"))
    drawings = {
        "dots": (_LINE * models + _AROUND, _draw_dots),
        "cells": ((_CELL * models + _AROUND) * quantities, _draw_grid_cells),
        "times": (_OF_TIMES, _draw_times),
        "differences": (_LINE * models + _AROUND + _TITLE, _draw_differences),
    }
    figures.draw_chart(shown, path, other=drawings.get(shown.kind), **options)


def grid_measurement(results: Results, name: str, costs: Costs) -> Measurement:
    """The content of the table of this name, seed by seed.

    A row without a value is a seed that diverged; without a seed too, it is a cell without records. Rows without a
    setting are the costs of a line's connection.
    """
    recipes, rows = results.grids[name], list[tuple[Value, ...]]()
    metric = ranked_by(recipes[0].task).metric
    for line in grid_lines(recipes, results.runs):
        model = line[0].recipe.parts[-2]
        for cell in line:
            setting, seeds = cell.setting, [record.seed for record in cell.ran]
            rows += [(model, setting, seed, metric, cell.values.get(seed)) for seed in seeds]
            rows += [] if seeds else [(model, setting, None, metric, None)]
        further = costs.figures(line[0].recipe, recipes[0])
        rows += [(model, "", None, quantity, figure) for quantity, figure in further.items() if figure is not None]
    keys = ("model", "setting", "seed", "quantity", "value")
    return Measurement(analysis="grid", conditions={}, rows=[dict(zip(keys, row, strict=True)) for row in rows])


def _draw_dots(figure: Figure, shown: Chart) -> None:
    """One panel per quantity, one line per model, one point per seed; × at the edge marks a diverged seed."""
    from matplotlib.lines import Line2D

    quantities, models, settings = (_in_order(shown.rows, key) for key in ("quantity", "model", "setting"))
    trained = {row["setting"] for row in shown.rows if row["seed"] is not None}
    settings = [setting for setting in settings if setting in trained]
    styles: dict[str, dict[str, Any]] = {
        setting: {"color": COLOURS[at % len(COLOURS)], "marker": MARKERS[at % len(MARKERS)], "linestyle": ""}
        for at, setting in enumerate(settings)
    }
    widths = [3.0] + [1.0] * (len(quantities) - 1)
    panels = figure.subplots(1, len(quantities), squeeze=False, sharey=True, width_ratios=widths)[0]
    styles[""] = {"color": "0.3", "marker": "|", "linestyle": ""}  # a cost
    for axes, quantity in zip(panels, quantities, strict=True):
        rows = [row for row in shown.rows if row["quantity"] == quantity]
        values = [row["value"] for row in rows if row["value"] is not None]
        for row in rows:
            if row["value"] is not None:
                axes.plot(row["value"], models.index(row["model"]), alpha=0.8, **styles[row["setting"]])
        if values and spans_decade(values):
            axes.set_xscale("log")
            label_decades(axes.xaxis, values)
        axes.set_xlabel(word(quantity) if axes is panels[0] else fill(word(quantity), _NARROW))
        axes.tick_params(left=axes is panels[0])
        for model, group in groupby(rows, key=lambda row: row["model"]):
            for count, row in enumerate(filter(_diverged, group)):
                style = {**styles[row["setting"]], "marker": "x", "transform": axes.get_yaxis_transform()}
                axes.plot(1.0 - _APART * count, models.index(model), clip_on=False, **style)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    handles = [Line2D([], [], label=name, **styles[name]) for name in settings]
    if any(map(_diverged, shown.rows)):
        handles.append(Line2D([], [], label="diverged", color="0.3", linestyle="", marker="x"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _draw_grid_cells(figure: Figure, shown: Chart) -> None:
    """A map of models × settings for each quantity. A cell contains its mean, or says that its seeds diverged."""
    quantities, models, settings = (_in_order(shown.rows, key) for key in ("quantity", "model", "setting"))
    for axes, quantity in zip(figure.subplots(len(quantities), 1, squeeze=False)[:, 0], quantities, strict=True):
        cells = np.full((len(models), len(settings)), np.nan)
        rows = [row for row in shown.rows if row["quantity"] == quantity]
        for row in rows:
            if row["seeds"]:
                cells[models.index(row["model"]), settings.index(row["setting"])] = row["value"]
        image = axes.imshow(cells, cmap=COLOUR_MAP, aspect="auto")
        for row in rows:
            x, y = settings.index(row["setting"]), models.index(row["model"])
            said = [f"{row['value']:.2f}"] if row["seeds"] else []
            if row["diverged"]:
                said.append("diverged" if row["diverged"] == 1 and not said else f"{row['diverged']} diverged")
            dark = row["seeds"] and image.norm(row["value"]) < _DARK
            axes.text(x, y, "\n".join(said), ha="center", va="center", color="white" if dark else "black", fontsize=7)
        axes.grid(False)
        axes.set_xticks(range(len(settings)), settings)
        axes.set_yticks(range(len(models)), models)
        figure.colorbar(image, ax=axes, label=word(quantity), pad=0.01, aspect=12)


def _draw_times(figure: Figure, shown: Chart) -> None:
    """A point with its interval per model. Those that no other one beats in both time and value are named.

    The models of the first group are joined by a line.
    """
    axes = figure.subplots()
    groups = _in_order(shown.rows, "group")
    for at, group in enumerate(groups):
        rows = sorted((row for row in shown.rows if row["group"] == group), key=lambda row: row["time"])
        colour = COLOURS[at % len(COLOURS)]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[at % len(MARKERS)]}
        style["linestyle"] = "-" if at == 0 else ""
        axes.plot([row["time"] for row in rows], [row["value"] for row in rows], label=group, **style)
        for row in rows:
            if row["lower"] is not None:
                axes.plot([row["time"]] * 2, [row["lower"], row["upper"]], color=colour, linewidth=0.7, alpha=0.6)
    axes.set_xlabel(word("time_of_training"))
    axes.set_ylabel(fill(word(shown.rows[0]["quantity"]), 2 * _NARROW))
    figure.legend(loc="outside lower center", ncols=len(groups))
    _name_points(figure, axes, shown.rows)


def _draw_differences(figure: Figure, shown: Chart) -> None:
    """One panel per quantity, one line per model: a difference and its interval, marked by what was found."""
    from matplotlib.ticker import AutoMinorLocator, MaxNLocator

    quantities, models, kinds = (_in_order(shown.rows, key) for key in ("quantity", "model", "found"))
    panels = figure.subplots(1, len(quantities), squeeze=False, sharey=True)[0]
    for axes, quantity in zip(panels, quantities, strict=True):
        axes.axvline(0.0, color="0.3", linewidth=0.7)
        axes.set_title(fill(quantity, _NARROW))
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(AutoMinorLocator(5))
        axes.tick_params(left=axes is panels[0])
        for row in (row for row in shown.rows if row["quantity"] == quantity):
            at, (colour, face) = models.index(row["model"]), _DIFFERENCES[row["found"]]
            axes.plot([row["lower"], row["upper"]], [at, at], color=colour)
            axes.plot(row["value"], at, color=colour, marker="o", mfc=face)
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    for kind, (colour, face) in _DIFFERENCES.items():
        if kind in kinds:
            panels[0].plot([], [], color=colour, marker="o", mfc=face, label=kind)
    figure.legend(loc="outside lower center", ncols=len(kinds))


def _name_points(figure: Figure, axes: Axes, rows: Sequence[Row]) -> None:
    """Writes the names of the points that no other one beats in both time and value where they cover nothing."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # for the places of points
    taken = [Bbox.from_extents(x - 3, y - 3, x + 3, y + 3) for x, y in axes.transData.transform(
        [(row["time"], row["value"]) for row in rows]
    )]  # fmt: skip
    for row in rows:
        if any(o["time"] <= row["time"] and o["value"] <= row["value"] and o is not row for o in rows):
            continue
        for down, side in product((-4, 8, 16, 24, 32, 40, 48), (1, -1)):
            name = axes.annotate(
                row["model"], (row["time"], row["value"]), xytext=(4 * side, -down), textcoords="offset points",
                ha="left" if side > 0 else "right", fontsize=7, in_layout=False,
                arrowprops={"arrowstyle": "-", "linewidth": 0.4} if down > 8 else None,
            )  # fmt: skip
            name.get_window_extent()  # places it; that of Text lacks the arrow
            box = Text.get_window_extent(name)
            inside = axes.bbox.contains(box.x0, box.y0) and axes.bbox.contains(box.x1, box.y1)
            if inside and not any(box.overlaps(each) for each in taken):
                taken.append(box)
                break
            name.remove()


def _diverged(row: Row) -> bool:
    """False for a cell without a record, which has no seed."""
    return row["value"] is None and row["seed"] is not None


def _in_order(rows: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _cells(rows: Sequence[Row]) -> list[Row]:
    """One row per cell of a grid: the mean over seeds that did not diverge, and the numbers that did and did not."""
    found: dict[tuple[Value, ...], list[float | None]] = {}
    for row in rows:
        if row["setting"]:
            seeds = found.setdefault((row["model"], row["setting"], row["quantity"]), [])
            seeds += [row["value"]] if row["seed"] is not None else []
    cells = []
    for (model, setting, quantity), values in found.items():
        ended = [value for value in values if value is not None]
        cell = {"model": model, "setting": setting, "quantity": quantity, "value": fmean(ended) if ended else None}
        cells.append(cell | {"seeds": len(ended), "diverged": len(values) - len(ended)})
    return cells
