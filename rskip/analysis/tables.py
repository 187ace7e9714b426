"""A measurement as a text table: one line per stage for signals and gradients, one per block for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rskip.analysis.measurement import Measurement
from rskip.analysis.registry import ANALYSES
from rskip.analysis.streams import INPUT
from rskip.machine.terminal import columns

Row = Mapping[str, Any]

_PARTS = 4  # weights of a block's parts that the table shows
_COLLAPSED = 0.99  # similarity of streams from which a note says so


def text_form(measurement: Measurement) -> str:
    """The conditions in one line, then the table."""
    conditions = measurement.conditions
    told = [f"{conditions['examples']:,} examples of {conditions['data']}", f"seed {conditions['seed']}"]
    if conditions["batch_norm"]:
        told.append(f"BatchNorm: {conditions['batch_norm']}")
    analysis = measurement.analysis
    form = _depth if analysis == "depth" else _by_stage if ANALYSES[analysis].first_and_last else _by_block
    notes = _NOTES[analysis](measurement) if analysis in _NOTES else []
    return "\n".join([f"{analysis}, {', '.join(told)}\n\n{columns(form(measurement), left=(0, 2))}", *notes])


def _by_stage(measurement: Measurement) -> list[list[str]]:
    """Each stage's first and last block, and their ratio."""
    names = [name for name in ANALYSES[measurement.analysis].first_and_last if name in measurement.rows[0]]
    head = ["model", "depth", "stage", "blocks"]
    table = [[*head, *(f"{name} {part}" for name in names for part in ("first", "last", "first/last"))]]
    for (model, depth, stage), group in groupby(measurement.rows, key=lambda row: _key(row, "model", "depth", "stage")):
        rows = list(group)
        line = [model, str(depth), stage, f"{rows[0]['block']}-{rows[-1]['block']}"]
        for name in names:
            first, last = _value(rows[0], name), _value(rows[-1], name)
            line += [_number(first), _number(last), _number(first / last if first is not None and last else None)]
        table.append(line)
    return table


def _by_block(measurement: Measurement) -> list[list[str]]:
    """One column for each value, definition or gate."""
    analysis = ANALYSES[measurement.analysis]
    key, values = analysis.named_by, analysis.values
    names = list(dict.fromkeys(str(row[key]) for row in measurement.rows)) if key else values
    table = [["model", "depth", "block", "number", *(name.replace("_", " ") for name in names)]]
    for (model, depth, number, name), group in groupby(
        measurement.rows, key=lambda row: _key(row, "model", "depth", "block", "name")
    ):
        found = {str(row[key]) if key else value: _value(row, value) for row in group for value in values}
        table.append([model, str(depth), name, str(number), *(_number(found.get(each)) for each in names)])
    return table


def _collapses(measurement: Measurement) -> list[str]:
    """A line for each stack in which the streams become alike, with the block after which they do."""
    notes = []
    for place, group in groupby(measurement.rows, key=lambda row: _key(row, "model", "depth", "stage")):
        rows = [row for row in group if _value(row, "stream_similarity") is not None]
        found = next((row for row in reversed(rows) if (_value(row, "stream_similarity") or 0.0) < _COLLAPSED), None)
        last = rows[rows.index(found) + 1 :] if found else rows
        if last:
            where = f"from block {last[0]['block']}, {last[0]['name']}, on"
            notes.append(f"{place[0]}, {place[2]}: the streams are alike (cosine {_COLLAPSED} or more) {where}")
    return ["", *notes] if notes else []


def _not_linear(measurement: Measurement) -> list[str]:
    """A line for each model with blocks that have no coefficients."""
    rows = measurement.rows
    models = dict.fromkeys(row["model"] for row in rows if row["definition"] == "scale" and row["median"] is None)
    told = "coefficient, contribution and scale are empty for blocks whose y is not linear feature by feature"
    return ["", *(f"{model}: {told}" for model in models)] if models else []


def _depth(measurement: Measurement) -> list[list[str]]:
    """A block's weights of few parts, of its stack's input, of the block before, and the largest other one."""
    table = [["model", "depth", "block", "number", "parts", "input", "block before", "largest other"]]
    for (model, depth, number, name), group in groupby(
        measurement.rows, key=lambda row: _key(row, "model", "depth", "block", "name")
    ):
        rows = list(group)
        parts = [_value(row, "weight") for row in rows if row["over"] == "parts"]
        sources = {row["index"]: _value(row, "weight") for row in rows if row["over"] == "sources"}
        said = " ".join(map(_number, parts)) if len(parts) <= _PARTS else f"{len(parts)} parts"
        first, before = sources.pop(INPUT, None), sources.pop(number - 1, None)
        largest = max(sources, key=lambda source: abs(sources[source] or 0.0), default=None)
        other = "-" if largest is None else f"block {largest}: {_number(sources[largest])}"
        table.append([model, str(depth), name, str(number), said, _number(first), _number(before), other])
    return table


_NOTES = {"streams": _collapses, "ratios": _not_linear}


def _key(row: Row, *names: str) -> Sequence[Any]:
    return tuple(row[name] for name in names)


def _value(row: Row, name: str) -> float | None:
    return row.get(name)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
