"""What a run prints when it is done."""

from __future__ import annotations

from collections.abc import Mapping

from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.results_table import COLUMNS


def summarise(record: Record, recipe: Recipe) -> str:
    """The record's figures beside the expected and published ones, the time, where the record lies. Several lines."""
    lines = [f"\n{record.run}, seed {record.seed}"]
    for column in COLUMNS:
        if (figure := column.figure(record)) is None:
            continue
        line = f"  {column.heading:<18}{figure:7.2f}"
        if column.metric in recipe.expected.metrics:
            line += f"   (the recipe expects {recipe.expected.metrics[column.metric]:g})"
        lines.append(line)
    lines += [
        f"  {'the paper':<18}{each.figure:7.2f}   ({each.measure}, {each.table}; not a result of ours)"
        for each in recipe.paper
    ]
    line = f"  {'training':<18}{record.training['seconds'] / 60:7.1f} minutes"
    if recipe.expected.minutes is not None:
        on = f" on {recipe.expected.machine}" if recipe.expected.machine else ""
        line += f"   (the recipe expects {recipe.expected.minutes:g}{on})"
    return "\n".join([*lines, line, f"  {'record':<18}{record.path}"])


def next_steps(record: Record, places: Mapping[str, str]) -> str:
    """Where to look next: the run's own files, then what every run has. Several lines."""
    places = {
        **places,
        str(record.path): "settings, learning curve, figures and versions",
        "recipes/": "other recipes; --set train.lr=0.003 changes a setting",
        "rskip report": "the tables of all records",
    }
    width = max(map(len, places))
    return "\n".join(
        ["", "where to look next", *(f"  {place:<{width}}  {what}" for place, what in places.items())]
    )
