"""Figures of measurements, as PNG or SVG, in one style that works in print, in greyscale and for the colour-blind.

`chart` selects what a figure draws: one row per point or cell, and the keys of its position. `draw_chart` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from rskip.analysis.measurement import Measurement, Value
from rskip.analysis.registry import DRAWN, Kind
from rskip.files.plot import check_plot, plot_file
from rskip.settings.check import check
from rskip.settings.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Row = dict[str, Any]
Panel = list[Row]
MEAN = "mean"  # stands in for a seed in rows that are means over seeds
_PLACE = ("model", "depth", "seed", "update", "block", "stage", "sublayer")
_NO_VALUES = ("model", "seed", "epoch", "update")  # columns of a learning curve
_CELLS: dict[str, dict[str, Any]] = {  # where the cells of heat maps are drawn
    "sources": {"x": "block", "y": "source", "columns": ("stage",), "panels": ("model", "depth"), "colour": "value"},
    "histogram": {"x": "block", "y": "bin", "columns": ("quantity",), "panels": ("model", "depth"), "colour": "share"},
    "heat_map": {"x": "update", "y": "block", "columns": ("model", "seed"), "panels": ("quantity",), "colour": "value"},
}

WIDTH = 7.0  # inches, the width of a page's text
STYLE = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 8.5), "legend.fontsize": 8,
    "figure.titlesize": 9.5, **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7.5),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False), "axes.grid": True,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), "0.3"), "grid.color": "0.92",
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), "black"),
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.6), "lines.linewidth": 1.3, "lines.markersize": 3.6,
    "legend.handlelength": 2.6,
}  # fmt: skip
# Okabe and Ito's colours for the colour-blind, without their yellow, which is faint on white
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00", "#7f7f7f")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
COLOUR_MAP = "viridis"
_KNOWN = (  # these connections' lines look the same in every figure; others get the remaining styles
    "1xskip+ln", "2rskip+ln", "sas", "2xskip", "1xskip", "0.5xskip", "2xskip+ln", "3rskip+ln", "highway", "wskip+ln",
    "1xskip+bn",
)  # fmt: skip
_MARKS = 6  # number of markers on a line with many points
_LINE, _HANDLE = 115, 8  # characters that fit below the panels, and the width of a line's sample in the legend

WORDS = {  # in labels, by quantity
    "x_rms": "RMS of x", "f_rms": "RMS of F(x)", "y_rms": "RMS of y", "similarity": "cosine between positions of y",
    "gradient": "gradient norm ‖∂L/∂y‖", "alpha": "α", "beta": "β", "gamma": "(1−α)(1−β)",
    "transform": "transform gate T", "coefficient": "x : F(x), by coefficient", "norm": "x : F(x), by norm",
    "contribution": "x : F(x), by contribution", "scale": "coefficient of x",
    "stream_similarity": "cosine between streams", "effective_rank": "effective rank of the streams",
    "row_gain": "row gain of H", "column_gain": "column gain of H",
    "from_stochastic": "distance of H from doubly stochastic", "from_identity": "‖H − I‖",
    "weight": "weight in a block's input", "source": "source: 0 the input, else the block",
    "update": "updates", "epoch": "epochs", "bin": "value", "share": "share of positions",
    "self_attn": "self-attention", "encoder_attn": "encoder attention", "ffn": "feed-forward",
    **{f"layer{number}": f"stage {number}" for number in range(1, 5)},
    "loss": "training loss", "gradient_norm": "norm of the whole gradient", "train_loss": "training loss",
    "valid_loss": "validation loss", "test_loss": "test loss", "train_error": "training error, %",
    "test_error": "test error, %", "valid_ppl": "validation perplexity", "valid_cider": "validation CIDEr",
    "time": "time of a step, ×", "time_of_training": "time of the training, × that of the baseline",
    "loss_second_half": "loss on the second half of the validation text", "calls": "operator calls, ×",
    "memory": "memory kept, ×", "cosine": "cosine, untrained",
}  # fmt: skip
_BOUNDED = {"alpha", "beta", "gamma", "transform"}  # between 0 and 1
_TOGETHER = {  # labels for quantities that share a panel
    **dict.fromkeys(_BOUNDED, "mean of the gate"),
    **dict.fromkeys(("x_rms", "f_rms", "y_rms"), "RMS"),
    **dict.fromkeys(("coefficient", "norm", "contribution"), "ratio of x to F(x)"),
}
_LINEAR = _BOUNDED | {"similarity", "stream_similarity", "train_error", "test_error"}

Draw = Callable[["Figure", "Chart"], None]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a measurement that a figure shows, and the kind of figure. An empty choice selects everything.

    The kinds of each analysis, the default first:

        signals, gradients, ratios,
        streams                      blocks: values by block, one panel per stage
        gates                        blocks: means; histogram: blocks × values, one panel per gate
        depth                        sources: blocks × sources of their inputs, one panel per stage
        trace                        heat_map: updates × blocks, one panel per run; updates: values over updates, one
                                     panel per quantity, for `blocks` or by default each stage's last block
        curves                       curves: values over epochs or updates, one panel per quantity
    """

    kind: Kind | None = None
    title: str = ""
    models: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    quantities: tuple[str, ...] = ()
    depths: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    over: Literal["epoch", "update"] = "epoch"

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Chart:
    """Rows, and the keys that determine where each is drawn.

    :param x, y: keys of a point's or cell's position.
    :param columns, panels: keys whose values select the panel's column and row.
    :param line: key whose value the points of one line share. Each `seed` is a thin line; their mean is a thick one.
    :param marker: key whose value selects a point's marker.
    :param colour: key of a cell's value.
    """

    kind: Kind
    rows: Sequence[Row]
    x: str
    y: str
    columns: tuple[str, ...]
    panels: tuple[str, ...]
    line: str = ""
    marker: str = ""
    colour: str = ""

    def to_csv(self) -> str:
        """The values that are drawn, as CSV."""
        return Measurement(analysis=self.kind, conditions={}, rows=self.rows).to_csv()


def choose_kind(kinds: Sequence[Kind], measurement: Measurement, view: View) -> Kind:
    """:raises SettingError: the view's kind is not one of the measurement's."""
    if view.kind and view.kind not in kinds:
        raise SettingError.of_value("kind", view.kind, f"{' or '.join(kinds)} for {measurement.analysis}")
    return view.kind or kinds[0]


def chart(measurement: Measurement, view: View = View()) -> Chart:  # noqa: B008  (frozen)
    """The chart of a measurement that the view selects.

    :raises ValueError: the view names something that the measurement lacks, or nothing is left to draw.
    """
    kind = choose_kind(DRAWN[measurement.analysis].charts, measurement, view)
    rows = chosen(_histograms(measurement) if kind == "histogram" else _points(measurement, view), view)
    if kind in _CELLS:
        return Chart(kind, rows, **_CELLS[kind])
    if kind == "updates":
        last = {row["stage"]: row["block"] for row in sorted(rows, key=lambda row: row["block"])}
        rows = [row for row in rows if view.blocks or row["block"] in last.values()]
    if kind in ("updates", "curves"):
        x, panels = ("update", ("block",)) if kind == "updates" else (view.over, ())
        return Chart(kind, _with_means(rows, x), x, "value", ("quantity",), panels, line="model")
    marker = "sublayer" if any(row["sublayer"] for row in rows) else ""
    models, quantities = ({row[key] for row in rows} for key in ("model", "quantity"))
    together = measurement.analysis == "gates" or len(models) == 1 < len(quantities) and "scale" not in quantities
    line, panel = ("quantity", "model") if together else ("model", "quantity")
    return Chart(kind, rows, "block", "value", ("stage",), (panel, "depth"), line=line, marker=marker)


def _points(measurement: Measurement, view: View) -> list[Row]:
    """One row per value: where it was measured, `quantity`, `value`, and for ratios the quartiles."""
    analysis = DRAWN[measurement.analysis]
    rows: list[Row] = []
    for row in measurement.rows:
        place = {key: row[key] for key in _PLACE if key in row}
        if analysis.named_by:
            quartiles = {key: row[key] for key in ("lower", "upper") if key in row}
            rows.append({**place, "quantity": row[analysis.named_by], "value": row[analysis.values[0]], **quartiles})
        elif measurement.analysis == "depth":
            if row["over"] == "sources":
                rows.append({**place, "quantity": "weight", "source": row["index"], "value": row["weight"]})
        elif measurement.analysis == "curves":
            place = {key: row[key] for key in ("model", "seed", view.over)}
            usual = ("train_loss", "valid_loss", "test_loss", "_error")
            names = [key for key in row if key not in _NO_VALUES and (view.quantities or key.endswith(usual))]
            rows += [{**place, "quantity": name, "value": row[name]} for name in names if row[view.over] is not None]
        else:
            wanted = [name for name in view.quantities if isinstance(row.get(name), float)]
            names = list(dict.fromkeys((*analysis.values, *wanted)))
            rows += [{**place, "quantity": name, "value": row[name]} for name in names]
    return [row for row in rows if row["value"] is not None]


def _histograms(measurement: Measurement) -> list[Row]:
    """One row per cell: block, gate, the bin's lower edge, and the share of values in the bin."""
    bins = [key for key in measurement.rows[0] if key[1:].isdecimal()] if measurement.rows else []
    return [
        {key: row[key] for key in _PLACE if key in row}
        | {"quantity": row["gate"], "bin": number / len(bins), "share": row[key]}
        for row in measurement.rows
        for number, key in enumerate(bins)
    ]


def chosen(rows: list[Row], view: View) -> list[Row]:
    """The rows that the view selects, with its labels, and its order of models and quantities."""
    for name, key in (("models", "model"), ("quantities", "quantity"), ("depths", "depth"), ("blocks", "block")):
        if not (wanted := getattr(view, name)) or not rows:
            continue
        there = dict.fromkeys(row.get(key) for row in rows)
        for value in wanted:
            if value not in there:
                listed = list(map(str, there))
                raise SettingError.of_value(name, value, f"{', '.join(listed)}{did_you_mean(value, listed)}")
        rows = [row for row in rows if row[key] in wanted]
        if name in ("models", "quantities"):
            rows.sort(key=lambda row, key=key, wanted=wanted: wanted.index(row[key]))  # type: ignore[misc]
    if not rows:
        raise ValueError("nothing is left to draw: select less narrowly")
    return [{**row, "model": view.labels.get(row["model"], row["model"])} for row in rows]


def _with_means(rows: list[Row], x: str) -> list[Row]:
    """The rows, and for lines with several seeds their mean at each x that all seeds share."""
    lines: dict[tuple[Value, ...], dict[Value, dict[Value, Row]]] = {}
    for row in rows:
        line = lines.setdefault((row["model"], row["quantity"], row.get("block")), {})
        line.setdefault(row[x], {})[row["seed"]] = row
    means = []
    for places in lines.values():
        seeds = {seed for place in places.values() for seed in place}
        for place in places.values():
            if len(seeds) > 1 and len(place) == len(seeds):
                first = next(iter(place.values()))
                means.append({**first, "seed": MEAN, "value": fmean(row["value"] for row in place.values())})
    return rows + means


def draw(measurement: Measurement, path: str | Path, view: View = View()) -> None:  # noqa: B008  (frozen)
    """Draws the part of a measurement that the view selects.

    :param path: ends in .png or .svg.
    :raises ValueError: see `chart` and `check_plot`.
    """
    draw_chart(chart(measurement, view), Path(path), title=view.title)


def draw_chart(
    shown: Chart,
    path: Path,
    *,
    title: str = "",
    description: str = "",
    other: tuple[float, Draw] | None = None,
) -> None:
    """Draws a chart. The same chart and version of matplotlib give the same bytes.

    :param description: text to store in the file.
    :param other: the height in inches and the function of a figure that is not made of lines or heat maps.
    """
    check_plot(path)
    places = [] if other else _panels(shown)
    height = other[0] if other else (1.9 if len(places) > 1 else 2.4) * len(places) + 0.5
    options: dict[str, Any] = {"figsize": (WIDTH, height), "layout": "constrained"}
    with plot_file(path, style=STYLE, description=description, few_colours=True, **options) as figure:
        if title:
            figure.suptitle(title, x=0.01, ha="left", weight="bold", wrap=True)
        if other:
            other[1](figure, shown)
        else:
            (_draw_cells if shown.colour else _draw_lines)(figure, shown, places)


def _panels(shown: Chart) -> list[list[Panel]]:
    """The rows of each panel, by the figure's rows and columns. A single row of many panels is wrapped."""
    panels: dict[Any, dict[Any, Panel]] = {}
    for row in shown.rows:
        down, across = (tuple(row[key] for key in keys) for keys in (shown.panels, shown.columns))
        panels.setdefault(down, {}).setdefault(across, []).append(row)
    names = list(dict.fromkeys(across for line in panels.values() for across in line))
    grid = [[line.get(across, []) for across in names] for line in panels.values()]
    if len(grid) == 1 and len(names) > 3 and shown.columns != ("stage",):
        width = math.ceil(math.sqrt(len(names)))
        flat = grid[0] + [[] for _ in range(-len(names) % width)]
        grid = [flat[start : start + width] for start in range(0, len(flat), width)]
    return grid


def _draw_lines(figure: Figure, shown: Chart, grid: list[list[Panel]]) -> None:
    from matplotlib.ticker import MaxNLocator

    by_stage = shown.columns == ("stage",)
    names = list(dict.fromkeys(row[shown.line] for row in shown.rows))
    marked = list(dict.fromkeys(row[shown.marker] for row in shown.rows)) if shown.marker else []
    styles = _line_styles(names)
    widths = [1 + max(len({row[shown.x] for row in panel}) for panel in column) for column in zip(*grid, strict=True)]
    axes_grid = figure.subplots(
        len(grid), len(grid[0]), squeeze=False, sharey="row" if by_stage else "none",
        width_ratios=widths if by_stage else None,
    )  # fmt: skip
    for number, (axes_row, panels) in enumerate(zip(axes_grid, grid, strict=True)):
        for axes, panel in zip(axes_row, panels, strict=True):
            if not panel:
                axes.set_axis_off()
                continue
            for index, name in enumerate(names):
                _draw_line(axes, shown, [row for row in panel if row[shown.line] == name], styles[name], index, marked)
            sharing = [row for each in panels for row in each] if by_stage else panel  # one vertical axis
            if _is_log(sharing):
                axes.set_yscale("log")
                label_decades(axes.yaxis, [row["value"] for row in sharing])
            elif all(row["quantity"] in _BOUNDED for row in panel):
                axes.set_ylim(-0.03, 1.03)
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=3))
            _label_panel(axes, shown, grid, number, panel)
    _draw_legends(figure, styles, marked, rows=len(grid))


def _draw_legends(figure: Figure, styles: dict[Any, dict[str, Any]], marked: Sequence[Any], *, rows: int) -> None:
    """Places the legend outside the panels: below them, or at the side if there are many lines and rows of panels."""
    from matplotlib.lines import Line2D

    shown = [(name, style | ({"marker": ""} if marked else {})) for name, style in styles.items()]
    shown += [(name, {"color": "0.3", "linestyle": "", "marker": MARKERS[at]}) for at, name in enumerate(marked)]
    labels = [word(name).removeprefix("x : F(x), ") for name, _ in shown]
    handles = [Line2D([], [], label=label, **style) for label, (_, style) in zip(labels, shown, strict=True)]
    if len(styles) > 5 and (rows > 1 or marked):
        figure.legend(handles=handles, loc="outside right center")
    elif len(handles) > 1:
        longest = max(map(len, labels)) + _HANDLE
        figure.legend(handles=handles, loc="outside lower center", ncols=max(1, min(5, _LINE // longest)))


def _line_styles(names: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """The style of each line. Colour, dashes and marker all differ, so that any one of them identifies the line."""
    numbers = {name: _KNOWN.index(name) for name in names if name in _KNOWN}
    free = (number for number in count() if number not in numbers.values())
    return {
        name: {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[(number + number // len(COLOURS)) % len(DASHES)],
            "marker": MARKERS[number % len(MARKERS)],
        }
        for name, number in ((name, numbers[name] if name in numbers else next(free)) for name in names)
    }


def _draw_line(axes: Axes, shown: Chart, rows: Panel, style: dict[str, Any], index: int, marked: Sequence[Any]) -> None:
    seeds = list(dict.fromkeys(row.get("seed") for row in rows))
    for seed in seeds:
        points = [row for row in rows if row.get("seed") == seed]
        x, y = ([row[key] for row in points] for key in (shown.x, shown.y))
        if MEAN in seeds and seed != MEAN:
            axes.plot(x, y, color=style["color"], linewidth=0.5, alpha=0.55)
        elif marked:
            axes.plot(x, y, color=style["color"], linestyle=style["linestyle"], linewidth=1)
            for marker, name in zip(MARKERS, marked, strict=False):
                at = [place for place, row in enumerate(points) if row[shown.marker] == name]
                axes.plot(x, y, color=style["color"], linestyle="", marker=marker, markevery=at)
        else:
            step = max(1, -(-len(x) // _MARKS))
            axes.plot(x, y, markevery=(index * step // 3 % step, step), **style)
        if all("lower" in row for row in points):
            lower, upper = ([row[key] for row in points] for key in ("lower", "upper"))
            axes.fill_between(x, lower, upper, color=style["color"], alpha=0.15, linewidth=0)


def _is_log(rows: Sequence[Row]) -> bool:
    values = [row["value"] for row in rows]
    linear = all(row["quantity"] in _LINEAR or row["quantity"].endswith("_error") for row in rows)
    return not linear and spans_decade(values)


def _label_panel(axes: Axes, shown: Chart, grid: list[list[Panel]], number: int, panel: Panel) -> None:
    """Writes the difference between columns into the title, and that between rows to the vertical axis.

    :param number: number of the panel's row.
    """
    column = next(place for place, each in enumerate(grid[number]) if each is panel)
    differing = {key for key in (*shown.columns, *shown.panels) if len({row[key] for row in shown.rows}) > 1}
    said = {key: named(key, panel[0][key]) for key in (*shown.columns, *shown.panels)}
    wrapped = differing.isdisjoint(shown.panels)  # a row of panels, in several
    if number == 0 or wrapped or "quantity" in shown.columns:
        names = [said[key] for key in shown.columns if key in differing or key == shown.columns[0]]
        axes.set_title(", ".join(names), pad=14 if shown.kind == "histogram" else None)
    if number + 1 == len(grid) or not grid[number + 1][column]:
        axes.set_xlabel(word(shown.x))
        axes.tick_params(labelbottom=True)
    if column == 0:
        what = [said[key] for key in shown.panels if key in differing and key != "quantity"]
        if shown.colour:
            stages = dict.fromkeys(word(row["stage"]) for row in panel)
            what.append(f"block ({' | '.join(stages)})" if shown.y == "block" else word(shown.y))
        elif "quantity" in shown.panels:
            what.insert(0, said["quantity"])
        elif shown.line == "quantity":
            what.insert(0, _TOGETHER.get(panel[0]["quantity"], ""))
        axes.set_ylabel("\n".join(what))


def _draw_cells(figure: Figure, shown: Chart, grid: list[list[Panel]]) -> None:
    """Heat maps. The panels of a quantity share a colour scale, which is logarithmic if values span over a decade."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize, PowerNorm
    from matplotlib.ticker import MaxNLocator

    axes_grid = figure.subplots(len(grid), len(grid[0]), squeeze=False, sharex="col", sharey="row")
    is_histogram = shown.kind == "histogram"
    for number, (axes_row, panels) in enumerate(zip(axes_grid, grid, strict=True)):
        quantity = next(panel for panel in panels if panel)[0]["quantity"]
        rows = [row for row in shown.rows if is_histogram or row["quantity"] == quantity]
        values = [row[shown.colour] for row in rows]
        norm: Normalize
        if is_histogram:
            norm = PowerNorm(0.5, vmin=0, vmax=max(values))  # keeps a few per cent visible next to 100
        elif _is_log(rows):
            norm = LogNorm(min(values), max(values))
        else:
            norm = Normalize(*((0, 1) if all(row["quantity"] in _BOUNDED for row in rows) else ()))
        for axes, panel in zip(axes_row, panels, strict=True):
            if not panel:
                axes.set_axis_off()
                continue
            x, y = (sorted({row[key] for row in panel}) for key in (shown.x, shown.y))
            x_edges, y_edges = _edges(x), np.linspace(0, 1, len(y) + 1) if is_histogram else _edges(y)
            cells = np.full((len(y), len(x)), np.nan)
            for row in panel:
                cells[y.index(row[shown.y]), x.index(row[shown.x])] = row[shown.colour]
            axes.set_facecolor("0.75")  # cells without a value
            colours = "Blues" if is_histogram else COLOUR_MAP
            drawn = axes.pcolormesh(x_edges, y_edges, cells, norm=norm, rasterized=True, cmap=colours)
            axes.grid(False)
            _mark_stages(axes, shown, panel)
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            if shown.y in ("block", "source"):
                axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
            _label_panel(axes, shown, grid, number, panel)
        label = word("share" if is_histogram else quantity)
        scale = figure.colorbar(drawn, ax=list(axes_row), label=label, pad=0.01, aspect=12)
        if isinstance(norm, LogNorm):
            label_decades(scale.ax.yaxis, values)


def _edges(places: Sequence[float]) -> list[float]:
    """The edges of cells: halfway between neighbouring places, and symmetrically outside the first and last one."""
    middles = [(a + b) / 2 for a, b in zip(places, places[1:], strict=False)]
    first, last = (middles[0], middles[-1]) if middles else (places[0] + 0.5, places[0] - 0.5)
    return [2 * places[0] - first, *middles, 2 * places[-1] - last]


def _mark_stages(axes: Axes, shown: Chart, panel: Panel) -> None:
    """Draws a line between the blocks of two stages and, along a horizontal axis, the names of the stages."""
    stages: dict[str, list[int]] = {}
    for row in sorted(panel, key=lambda row: row["block"]):
        stages.setdefault(row["stage"], []).append(row["block"])
    before = 0
    for stage, blocks in stages.items():
        if shown.x == "block":
            place: Any = (fmean(dict.fromkeys(blocks)), 1)
            axes.annotate(
                word(stage), place, xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points",
                ha="center", fontsize=7,
            )  # fmt: skip
        if before:
            line = axes.axvline if shown.x == "block" else axes.axhline
            line((before + blocks[0]) / 2, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        before = blocks[-1]


def named(key: str, value: Any) -> str:
    return f"{key} {value}" if key in ("depth", "block", "seed") and value != MEAN else word(value)


def word(value: Any) -> str:
    return WORDS.get(value, str(value))


def spans_decade(values: Sequence[float]) -> bool:
    """Whether positive values span a factor above 10, for a logarithmic scale."""
    return min(values) > 0 and max(values) > 10 * min(values)


def label_decades(axis: Axis, values: Sequence[float]) -> None:
    """Sets the ticks of a logarithmic axis. If it shows few decades, there are more ticks, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(values), max(values)
    if high < 1000 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if low > 1e-4 and high < 1e5:
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())
