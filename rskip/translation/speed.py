"""Measures the speed of a translation training on this machine by its first updates."""

from __future__ import annotations

import json
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rskip.tasks.fairseq.log import JSON_LINE
from rskip.tasks.process import run_logged
from rskip.tasks.run import Run, precision_here
from rskip.translation.recipe import TranslationSettings
from rskip.translation.training import training_of

_UPDATES, _SKIPPED = 50, 10  # the first updates are slower; fewer are skipped if a slow machine makes fewer
_SHARE = 0.2  # share of the time for the measured updates
_FOR_UPDATES = 0.85  # share of the time; the rest is for starting, validating, saving and scoring


def updates_within(minutes: float, run: Run[TranslationSettings]) -> tuple[int, float]:
    """The number of updates in a given time, including the measurement, and the seconds per update.

    It runs 50 updates, or fewer if they take more than a fifth of the time, and deletes their files.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        probe = replace(run, runs=Path(folder), probe=None)
        training, log = training_of(probe), Path(folder, "log")
        probing = ["--max-update", str(_UPDATES), "--stop-time-hours", f"{minutes / 60 * _SHARE:.6f}"]
        probing += ["--log-interval", "1", "--no-save", "--disable-validation"]
        command = [*training.command(precision_here(training.precision, gpus=run.gpus)), *probing]
        run_logged(command, log=log, processes=max(run.gpus, 1))
        seconds = seconds_per_update(log.read_text(encoding="utf-8", errors="replace"))
    left = 60 * minutes - (time.monotonic() - started)
    return max(math.floor(left * _FOR_UPDATES / seconds), 1), seconds


def minutes_of(updates: int, seconds: float) -> float:
    """The minutes of a training with this number of updates and seconds per update, without the measurement."""
    return updates * seconds / _FOR_UPDATES / 60


def seconds_per_update(log: str) -> float:
    """The mean over the updates of a log with one line per update, without the first ones."""
    found = [match for line in log.split("\n") if (match := JSON_LINE.search(line)) and match[1] == "train_inner"]
    lines = [json.loads(match[2]) for match in found]
    points = [(float(line["num_updates"]), float(line["wall"])) for line in lines if "wall" in line]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        raise ValueError(
            "the training ended before the speed was measured: the time limit is too short, or the training set too "
            "small; give --epochs or --updates instead of --minutes"
        )
    (first, begun), (last, ended) = points[min(_SKIPPED, len(points) // 2) - 1], points[-1]
    return max(ended - begun, 0.5) / (last - first)  # fairseq logs whole seconds
