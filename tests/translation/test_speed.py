"""The speed of a training, read from the log of its first updates."""

from __future__ import annotations

import pytest

from rskip.translation.speed import seconds_per_update

LINE = '2026-01-01 00:00:00 | INFO | train_inner | {{"epoch": 1, "num_updates": "{updates}", "wall": "{wall}"}}\n'


def test_the_first_updates_do_not_count() -> None:
    log = "loading\n" + "".join(LINE.format(updates=each, wall=wall) for each, wall in [(10, 9), (20, 11), (50, 17)])
    assert seconds_per_update(log) == 8 / 40


def test_a_training_that_is_over_at_once_measures_nothing() -> None:
    with pytest.raises(ValueError, match="too small to measure the speed: .* give --epochs or --updates in place of"):
        seconds_per_update(LINE.format(updates=10, wall=1))
