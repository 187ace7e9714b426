"""The speed of a training, read from the log of its first updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rskip.experiments.recipe import load_recipe
from rskip.tasks.run import Run
from rskip.translation import speed
from rskip.translation.speed import minutes_of, seconds_per_update, updates_within

LINE = '2026-01-01 00:00:00 | INFO | train_inner | {{"epoch": 1, "num_updates": "{updates}", "wall": "{wall}"}}\n'


def test_the_first_updates_do_not_count() -> None:
    walls = {each: 20 + each / 5 for each in range(10, 51)}
    log = "loading\n" + "".join(LINE.format(updates=each, wall=walls.get(each, each)) for each in range(1, 51))
    assert seconds_per_update(log) == pytest.approx(0.2)
    log = "".join(LINE.format(updates=each, wall=wall) for each, wall in [(1, 9), (2, 19), (3, 22), (4, 25)])
    assert seconds_per_update(log) == 3  # of a slow machine


def test_a_training_that_is_over_at_once_measures_nothing() -> None:
    with pytest.raises(ValueError, match="before the speed was measured: .*; give --epochs or --updates instead of"):
        seconds_per_update(LINE.format(updates=10, wall=1))


def test_the_measurement_counts_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stops = [100.0], ["0.000333", "0.008333"]  # a fifth of the time

    def measured(command: Any, *, log: Path, processes: int) -> None:
        assert command[command.index("--stop-time-hours") + 1] == stops.pop()
        log.write_text("".join(LINE.format(updates=each, wall=each / 5) for each in range(1, 51)))
        now[0] += 30

    monkeypatch.setattr(speed, "run_logged", measured)
    monkeypatch.setattr(speed.time, "monotonic", lambda: now[0])
    settings = load_recipe("recipes/multi30k_en_de.yaml", variant="2xskip_ln").settings
    run = Run(name="x", seed=1, settings=settings, gpus=0)
    assert updates_within(2.5, run) == (int((150 - 30) * 0.85 / 0.2), 0.2)
    assert updates_within(0.1, run) == (1, 0.2)  # no time is left
    assert minutes_of(510, 0.2) == pytest.approx(2)
