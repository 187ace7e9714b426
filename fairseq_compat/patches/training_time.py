"""Measures the time of a training run that is resumed within an epoch.

When it resumes, fairseq also restores the clock `wall`, which then has no start and shows 0 seconds.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def keep_clock(module: Any) -> None:
    """Wraps `Trainer.load_checkpoint`."""
    metrics = module.metrics

    @wraps(module.Trainer, "load_checkpoint")
    def load_checkpoint(original: Any, self: Any, *args: Any, **options: Any) -> Any:
        start = getattr(metrics.get_meter("default", "wall"), "start_time", None)
        state = original(self, *args, **options)
        if (clock := metrics.get_meter("default", "wall")) is not None and clock.start_time is None:
            clock.start_time = start
        return state


TRAINING_TIME = Patch(
    name="training-time",
    symptom="a training run that is resumed within an epoch logs 0 seconds from then on",
    after={"fairseq.trainer": keep_clock},
)
