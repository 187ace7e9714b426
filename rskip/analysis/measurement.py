"""The result of an analysis: rows of plain values and the conditions of the measurement; as JSON, CSV and text."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rskip.files.state import read_state
from rskip.files.whole import atomic_file
from rskip.records import Record

DIGITS = 5  # significant digits to keep: machines differ in later ones

Value = str | int | float | None


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A table of measured values.

    :param analysis: signals, gradients, ratios, gates, streams, depth or trace.
    :param conditions: common to all rows, such as examples, data, BatchNorm's mode, precision, versions, machine.
    :param rows: one mapping per row, all with the same keys in the same order; every value is a `plain_value`.
    """

    analysis: str
    conditions: Mapping[str, Any]
    rows: Sequence[Mapping[str, Value]]

    def __post_init__(self) -> None:
        rows = [{key: plain_value(value) for key, value in row.items()} for row in self.rows]
        msgspec.structs.force_setattr(self, "rows", rows)

    def to_json(self) -> str:
        """JSON with one row per line, so that diffs are readable."""
        head = json.dumps({"analysis": self.analysis, "conditions": self.conditions}, indent=1)
        rows = ",\n  ".join(json.dumps(row) for row in self.rows)
        return f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'

    def to_csv(self) -> str:
        """CSV with a heading. An absent value is empty."""
        text = io.StringIO()
        rows = _with_all_keys(self.rows)
        writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def write(self, path: str | Path) -> None:
        """Writes CSV if the name ends in .csv, otherwise JSON, atomically."""
        path = Path(path)
        with atomic_file(path) as temporary:
            temporary.write_text(self.to_csv() if path.suffix == ".csv" else self.to_json(), encoding="utf-8")


def read_measurement(path: str | Path) -> Measurement:
    """Reads a measurement from JSON.

    :raises SettingError: the file is not a measurement. The message names it.
    """
    return read_state(Path(path), Measurement, advice="restore the file, or measure again")


def plain_value(value: Value) -> Value:
    """A float rounded to DIGITS significant digits, or None if it is not finite, since JSON has no such number."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def learning_curves(records: Iterable[Record]) -> Measurement:
    """Learning curves from run records. `model` is the run's name, `update` counts optimiser steps; None is absent.

    :raises ValueError: no record has a curve.
    """
    rows = [
        {"model": record.run, "seed": record.seed, "epoch": None, "update": entry.get("iteration")}
        | {key: value for key, value in entry.items() if key != "iteration"}
        for record in records
        for entry in record.curve
    ]
    if not rows:
        raise ValueError("no record has a learning curve: expected a record with one entry per epoch")
    return Measurement(analysis="curves", conditions={}, rows=_with_all_keys(rows))


def joined(measurements: Sequence[Measurement]) -> Measurement:
    """Joins measurements of one analysis. The result keeps only the conditions that all of them share."""
    first = measurements[0]
    conditions = {
        key: value
        for key, value in first.conditions.items()
        if all(each.conditions.get(key) == value for each in measurements)
    }
    rows = _with_all_keys([row for each in measurements for row in each.rows])
    return Measurement(analysis=first.analysis, conditions=conditions, rows=rows)


def _with_all_keys(rows: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key) for key in keys} for row in rows]
