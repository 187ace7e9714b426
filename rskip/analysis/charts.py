"""The content of a figure: one row per drawn point or cell, and its position. Drawing is in figures.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import msgspec

from rskip.analysis.measurement import Measurement, Value
from rskip.analysis.registry import ANALYSES, Analysis, Kind
from rskip.settings.check import check
from rskip.settings.errors import SettingError, did_you_mean

Row = dict[str, Any]
MEAN = "mean"  # stands in for a seed in rows that are means over seeds
DRAWN: Mapping[str, Analysis] = {
    **ANALYSES,
    "trace": Analysis(
        charts=("heat_map", "updates"), values=("x_rms", "f_rms", "y_rms", "gradient", "alpha", "beta", "gamma")
    ),
    "curves": Analysis(charts=("curves",)),
}
_PLACE = ("model", "depth", "seed", "update", "block", "stage", "sublayer")
_NO_VALUES = ("model", "seed", "epoch", "update")  # columns of a learning curve


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
    seeds: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()
    stages: tuple[str, ...] = ()
    sublayers: tuple[str, ...] = ()
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
    if kind == "sources":
        return Chart(kind, rows, "block", "source", ("stage",), ("model", "depth"), colour="value")
    if kind == "histogram":
        return Chart(kind, rows, "block", "bin", ("quantity",), ("model", "depth"), colour="share")
    if kind == "heat_map":
        return Chart(kind, rows, "update", "block", ("model", "seed"), ("quantity",), colour="value")
    if kind == "updates":
        last = {row["stage"]: row["block"] for row in sorted(rows, key=lambda row: row["block"])}
        rows = [row for row in rows if view.blocks or row["block"] in last.values()]
        return Chart(kind, _with_means(rows, "update"), "update", "value", ("quantity",), ("block",), line="model")
    if kind == "curves":
        return Chart(kind, _with_means(rows, view.over), view.over, "value", ("quantity",), (), line="model")
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
    for name in ("models", "quantities", "seeds", "depths", "stages", "sublayers", "blocks"):
        wanted, key = getattr(view, name), {"quantities": "quantity"}.get(name, name.removesuffix("s"))
        if not wanted or not rows:
            continue
        there = dict.fromkeys(row.get(key) for row in rows)
        for value in wanted:
            if value not in there:
                listed = list(map(str, there))
                raise SettingError.of_value(name, value, f"{', '.join(listed)}{did_you_mean(value, listed)}")
        # without a seed there is what a grid lacks or costs
        rows = [row for row in rows if row[key] in wanted or (key == "seed" and row[key] is None)]
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
