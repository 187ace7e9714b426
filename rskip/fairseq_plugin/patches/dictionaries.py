"""Refuses to continue a training run on data with another dictionary, even if it has the same number of tokens.

A checkpoint stores a digest of each dictionary in its `extra_state`. A checkpoint without digests loads as in fairseq.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps

KEY = "dictionaries"  # in extra_state


def compare_dictionaries(module: Any) -> None:
    """Wraps the trainer's `save_checkpoint` and `load_checkpoint`."""

    @wraps(module.Trainer, "save_checkpoint")
    def save_checkpoint(save: Any, self: Any, filename: str, extra_state: dict[str, Any]) -> None:
        save(self, filename, {**extra_state, KEY: _digests(self.task)})

    @wraps(module.Trainer, "load_checkpoint")
    def load_checkpoint(load: Any, self: Any, filename: str, *args: Any, **options: Any) -> Any:
        state = load(self, filename, *args, **options)
        before, now = (state or {}).get(KEY, {}), _digests(self.task)
        if differing := [side for side in before if now.get(side, before[side]) != before[side]]:
            which = f"{' and '.join(differing)} {'dictionary' if len(differing) == 1 else 'dictionaries'}"
            raise UsageError(
                f"the checkpoint {filename} and the data {self.cfg.task.data} have different {which}: train on the "
                "checkpoint's data, or prepare yours with its dictionaries (fairseq-preprocess --srcdict and --tgtdict)"
            )
        return state


def _digests(task: Any) -> dict[str, str]:
    """The SHA-256 of the tokens of each dictionary that the task has, in order."""
    digests = {}
    for side in ("source", "target"):
        with contextlib.suppress(AttributeError, NotImplementedError):  # a task without this dictionary
            if symbols := getattr(getattr(task, f"{side}_dictionary"), "symbols", None):
                digests[side] = hashlib.sha256("\n".join(symbols).encode()).hexdigest()
    return digests


DICTIONARIES = Patch(
    name="dictionaries",
    symptom="a training run continues on data with another dictionary of the same size, and confuses the tokens",
    after={"fairseq.trainer": compare_dictionaries},
)
