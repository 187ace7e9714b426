"""The rows that a grid's figures draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.analysis.figures import View
from rskip.analysis.measurement import Measurement
from rskip.settings.errors import SettingError
from study.grid_drawing import chart_of, draw_chart

_ROWS = (
    *(
        {"model": model, "setting": setting, "seed": seed, "quantity": "valid_loss", "value": value}
        for model, setting, seed, value in (
            ("sas", "lr1", None, None), ("sas", "lr2", 1, 4.0), ("sas", "lr2", 2, 5.0), ("sas", "lr2", 3, None),
            ("keel", "lr1", None, None), ("keel", "lr2", None, None),
        )
    ),
    *({"model": m, "setting": "", "seed": None, "quantity": "calls", "value": 3.0} for m in ("sas", "keel")),
)  # fmt: skip
GRID = Measurement(analysis="grid", conditions={}, rows=_ROWS)


def csv(measurement: Measurement, **view: object) -> list[str]:
    return chart_of(measurement, View(**view)).to_csv().splitlines()


def test_a_grid_is_a_point_a_seed_or_a_cell_of_their_mean():
    assert csv(GRID) == [
        "model,setting,seed,quantity,value",
        "sas,lr1,,valid_loss,",  # no record
        "sas,lr2,1,valid_loss,4.0",
        "sas,lr2,2,valid_loss,5.0",
        "sas,lr2,3,valid_loss,",  # diverged
        "sas,,,calls,3.0",
    ]
    assert csv(GRID, kind="cells") == [
        "model,setting,quantity,value,seeds,diverged",
        "sas,lr1,valid_loss,,0,0",
        "sas,lr2,valid_loss,4.5,2,1",
        "keel,lr1,valid_loss,,0,0",
        "keel,lr2,valid_loss,,0,0",
    ]
    with pytest.raises(SettingError, match="nothing is left to draw"):
        csv(GRID, models=("keel",))
    with pytest.raises(SettingError, match="nothing is left to draw"):
        csv(GRID, kind="cells", quantities=("calls",))


def test_all_kinds_are_drawn(tmp_path: Path):
    pytest.importorskip("matplotlib")
    place = {"model": "mhc", "quantity": "language model", "found": "lower per update"}
    differences = Measurement(
        analysis="differences", conditions={}, rows=[{**place, "value": -0.2, "lower": -0.3, "upper": -0.1}]
    )
    for kind, measurement in (("dots", GRID), ("cells", GRID), ("differences", differences)):
        draw_chart(chart_of(measurement, View(kind=kind)), tmp_path / "grid.svg")
        assert (tmp_path / "grid.svg").read_bytes().startswith(b"<?xml")
