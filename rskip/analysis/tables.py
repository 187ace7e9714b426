"""A measurement as a text table: one line per stage for signals and gradients, one per block for ratios and gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rskip.analysis.measurement import Measurement
from rskip.machine.terminal import columns

Row = Mapping[str, Any]

_FIRST_AND_LAST = {"signals": ("y_rms", "f_rms", "similarity"), "gradients": ("gradient",)}
_BY_BLOCK = {"ratios": ("definition", "median"), "gates": ("gate", "mean")}


def text_form(measurement: Measurement) -> str:
    """The conditions in one line, then the table."""
    conditions = measurement.conditions
    told = [f"{conditions['examples']:,} examples of {conditions['data']}", f"seed {conditions['seed']}"]
    if conditions["batch_norm"]:
        told.append(f"BatchNorm: {conditions['batch_norm']}")
    by_stage = measurement.analysis in _FIRST_AND_LAST
    table = _by_stage(measurement) if by_stage else _by_block(measurement)
    return f"{measurement.analysis}, {', '.join(told)}\n\n{columns(table, left=(0, 2))}"


def _by_stage(measurement: Measurement) -> list[list[str]]:
    """Each stage's first and last block, and their ratio."""
    names = [name for name in _FIRST_AND_LAST[measurement.analysis] if name in measurement.rows[0]]
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
    """One column for each definition or gate."""
    key, value = _BY_BLOCK[measurement.analysis]
    names = list(dict.fromkeys(str(row[key]) for row in measurement.rows))
    table = [["model", "depth", "block", "number", *names]]
    for (model, depth, number, name), group in groupby(
        measurement.rows, key=lambda row: _key(row, "model", "depth", "block", "name")
    ):
        found = {str(row[key]): _value(row, value) for row in group}
        table.append([model, str(depth), name, str(number), *(_number(found.get(each)) for each in names)])
    return table


def _key(row: Row, *names: str) -> Sequence[Any]:
    return tuple(row[name] for name in names)


def _value(row: Row, name: str) -> float | None:
    return row[name]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
