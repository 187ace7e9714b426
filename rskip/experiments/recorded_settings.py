"""The settings that a run was made with, against those of its recipe now."""

from __future__ import annotations

from rskip.experiments.config_difference import config_difference
from rskip.experiments.recipe import Recipe
from rskip.experiments.record import Record
from rskip.experiments.run_folder import RunFolder


def check_settings(record: Record, recipe: Recipe) -> None:
    """:raises ValueError: the recipe says other settings than the record."""
    if record.config != recipe.config:
        raise ValueError(
            f"{record.path} was made with other settings ({config_difference(record.config, recipe.config)}): for "
            f"another run give the change with --set, or remove {record.path} and "
            f"{RunFolder.of(record.run, record.seed).path}"
        )
