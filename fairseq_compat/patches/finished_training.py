"""Ends a training that is started again after its last update, instead of adding an update.

fairseq compares the number of updates with `--max-update` only after an update.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps


def end_at_once(module: Any) -> None:
    """Wraps `fairseq_cli.train.train`, which trains for one epoch."""

    @wraps(module, "train")
    def train(original: Any, cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        most = cfg.optimization.max_update
        if most and trainer.get_num_updates() >= most:
            return [None], True  # no validation loss; stop
        return original(cfg, trainer, task, epoch_itr)


FINISHED_TRAINING = Patch(
    name="finished-training",
    symptom="repeating a finished training run with --max-update makes one more update",
    after={"fairseq_cli.train": end_at_once},
)
