"""Measures the time of a training run that is resumed within an epoch.

When it resumes, fairseq also restores the clock `wall`, which then has no start and shows 0 seconds.
"""

from __future__ import annotations

import functools
from typing import Any

from fairseq_compat.patch import Patch


def keep_clock(module: Any) -> None:
    """Wraps `Trainer.load_checkpoint`."""
    original, metrics = module.Trainer.load_checkpoint, module.metrics

    @functools.wraps(original)
    def load_checkpoint(self: Any, *args: Any, **options: Any) -> Any:
        start = getattr(metrics.get_meter("default", "wall"), "start_time", None)
        state = original(self, *args, **options)
        if (clock := metrics.get_meter("default", "wall")) is not None and clock.start_time is None:
            clock.start_time = start
        return state

    module.Trainer.load_checkpoint = load_checkpoint


TRAINING_TIME = Patch(
    name="training-time",
    modules=("fairseq.trainer",),
    symptom="a training run that is resumed within an epoch logs 0 seconds from then on",
    after=keep_clock,
)
