"""Figures of a grid of connections and settings: one point per seed and the connection's cost, or a map of means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from rskip.analysis.charts import Chart, Row
from rskip.analysis.style import COLOUR_MAP, COLOURS, DECADE, MARKERS, label_decades, word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE, _CELL, _AROUND = 0.17, 0.32, 0.9  # inches: heights of a line of points, a cell, and the margins
_OF_TIMES = 3.6  # inches
_APART = 0.03  # distance between marks of diverged seeds, as a part of the panel's width
_DARK = 0.5  # a cell's text is white up to this part of the colour scale

Drawn = tuple["Axes", Row, tuple[float, float, float, float]]  # a value, and its box: left, bottom, right, top


def grid_height(shown: Chart) -> float:
    """In inches."""
    if shown.kind == "times":
        return _OF_TIMES
    models = len(_in_order(shown.rows, "model"))
    if shown.kind == "dots":
        return _LINE * models + _AROUND
    return (_CELL * models + _AROUND) * len(_in_order(shown.rows, "quantity"))


def draw_dots(figure: Figure, shown: Chart) -> list[Drawn]:
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
    drawn: list[Drawn] = []
    for axes, quantity in zip(panels, quantities, strict=True):
        rows = [row for row in shown.rows if row["quantity"] == quantity]
        values = [row["value"] for row in rows if row["value"] is not None]
        for row in rows:
            if row["value"] is not None:
                x, y = row["value"], models.index(row["model"])
                axes.plot(x, y, alpha=0.8, **styles[row["setting"]])
                drawn.append((axes, row, (x, y, x, y)))
        if values and min(values) > 0 and max(values) > DECADE * min(values):
            axes.set_xscale("log")
            label_decades(axes.xaxis, values)
        axes.set_xlabel(word(quantity))
        axes.tick_params(left=axes is panels[0])
        for model, group in groupby(rows, key=lambda row: row["model"]):
            for count, row in enumerate(filter(_diverged, group)):
                at, y = 1.0 - _APART * count, models.index(model)
                style = {**styles[row["setting"]], "marker": "x", "transform": axes.get_yaxis_transform()}
                axes.plot(at, y, clip_on=False, **style)
                x = axes.transData.inverted().transform(axes.transAxes.transform((at, 0.0)))[0]
                drawn.append((axes, row, (x, y, x, y)))
    panels[0].set_yticks(range(len(models)), models)
    panels[0].set_ylim(len(models) - 0.5, -0.5)
    handles = [Line2D([], [], label=name, **styles[name]) for name in settings]
    if any(map(_diverged, shown.rows)):
        handles.append(Line2D([], [], label="diverged", color="0.3", linestyle="", marker="x"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def draw_grid_cells(figure: Figure, shown: Chart) -> list[Drawn]:
    """A map of models × settings for each quantity. A cell contains its mean, or says that its seeds diverged."""
    quantities, models, settings = (_in_order(shown.rows, key) for key in ("quantity", "model", "setting"))
    drawn: list[Drawn] = []
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
            drawn.append((axes, row, (x - 0.5, y + 0.5, x + 0.5, y - 0.5)))
        axes.grid(False)
        axes.set_xticks(range(len(settings)), settings)
        axes.set_yticks(range(len(models)), models)
        figure.colorbar(image, ax=axes, label=word(quantity), pad=0.01, aspect=12)
    return drawn


def draw_times(figure: Figure, shown: Chart) -> list[Drawn]:
    """A point with its interval per model. Those that no other one beats in both time and value are named.

    The models of the first group are joined by a line.
    """
    axes = figure.subplots()
    groups = _in_order(shown.rows, "group")
    drawn: list[Drawn] = []
    for at, group in enumerate(groups):
        rows = sorted((row for row in shown.rows if row["group"] == group), key=lambda row: row["time"])
        colour = COLOURS[at % len(COLOURS)]
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[at % len(MARKERS)]}
        style["linestyle"] = "-" if at == 0 else ""
        axes.plot([row["time"] for row in rows], [row["value"] for row in rows], label=group, **style)
        for row in rows:
            if row["lower"] is not None:
                axes.plot([row["time"]] * 2, [row["lower"], row["upper"]], color=colour, linewidth=0.7, alpha=0.6)
            drawn.append((axes, row, (row["time"], row["value"]) * 2))
    for row in shown.rows:
        beaten = (o["time"] <= row["time"] and o["value"] <= row["value"] and o is not row for o in shown.rows)
        if not any(beaten):
            where = (row["time"], row["value"])
            axes.annotate(row["model"], where, xytext=(3, -8), textcoords="offset points", fontsize=7)
    axes.set_xlabel(word("time_of_training"))
    axes.set_ylabel(word(shown.rows[0]["quantity"]))
    figure.legend(loc="outside lower center", ncols=len(groups))
    return drawn


def _diverged(row: Row) -> bool:
    """False for a cell without a record, which has no seed."""
    return row["value"] is None and row["seed"] is not None


def _in_order(rows: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))
