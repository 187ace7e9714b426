"""Ends a training with the `rskip run` that started it, and saves nothing once another has taken the run over."""

from __future__ import annotations

import functools
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch
from rskip.files.folder_lock import FolderLock, LockLost
from rskip.machine.workers import end_with_parent


def check_lock(module: Any) -> None:
    """Wraps `torch_persistent_save`: it looks at the run's lock first. Does nothing of a training without one."""
    save, lock = module.torch_persistent_save, FolderLock.inherited()
    if lock is not None:
        end_with_parent()  # that may be torchrun

    @functools.wraps(save)
    def torch_persistent_save(*arguments: Any, **options: Any) -> None:
        if lock is not None:
            try:
                lock.check()
            except LockLost as error:
                raise UsageError(str(error)) from None
        save(*arguments, **options)

    torch_persistent_save.checks_lock = True  # type: ignore[attr-defined]
    module.torch_persistent_save = torch_persistent_save


def active() -> bool:
    from fairseq import checkpoint_utils

    return getattr(checkpoint_utils.torch_persistent_save, "checks_lock", False)


RUN_LOCK = Patch(
    name="run-lock",
    modules=("fairseq.checkpoint_utils",),
    symptom="a run that another process took over: its training goes on and writes into the other's checkpoints",
    after=check_lock,
    active=active,
)
