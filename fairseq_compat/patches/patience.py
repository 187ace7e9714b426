"""Keeps the count of `--patience N` when a training run is resumed.

fairseq counts the validations without a better result in attributes of a function, and does not save them. A resumed
training counts from zero and considers its first validation the best. With this patch a checkpoint stores the count in
its `extra_state`.
"""

from __future__ import annotations

from typing import Any

from fairseq_compat.patch import Patch, wraps

KEY = "patience"  # in extra_state


def counter() -> dict[str, Any]:
    """The state of `should_stop_early`: `best`, the best result, and `num_runs`, the validations since then."""
    from fairseq_cli.train import should_stop_early

    return vars(should_stop_early)


def keep_count(module: Any) -> None:
    """Wraps the trainer's `save_checkpoint` and `load_checkpoint`."""

    @wraps(module.Trainer, "save_checkpoint")
    def save_checkpoint(save: Any, self: Any, filename: str, extra_state: dict[str, Any]) -> None:
        count = counter() if self.cfg.checkpoint.patience > 0 else {}
        save(self, filename, {**extra_state, KEY: dict(count)} if count else extra_state)

    @wraps(module.Trainer, "load_checkpoint")
    def load_checkpoint(
        load: Any,
        self: Any,
        filename: str,
        reset_optimizer: bool = False,
        reset_lr_scheduler: bool = False,
        optimizer_overrides: Any = None,
        reset_meters: bool = False,
    ) -> Any:
        state = load(self, filename, reset_optimizer, reset_lr_scheduler, optimizer_overrides, reset_meters)
        if KEY in (state or {}) and not reset_optimizer and not reset_meters:  # like the best result
            counter().update(state[KEY])
        return state


PATIENCE = Patch(
    name="patience",
    symptom="--patience N: the count begins at zero when a training run is resumed",
    after={"fairseq.trainer": keep_count},
)
