"""Ends a training with the `rskip run` that started it. Refuses to save after another process took the run over."""

from __future__ import annotations

import functools
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch
from rskip.files.folder_lock import FolderLock, LockLost
from rskip.machine.workers import end_with_parent


def check_lock(module: Any) -> None:
    """Wraps `torch_persistent_save`, to check the run's lock first. Does nothing for a training without a lock."""
    save, lock = module.torch_persistent_save, FolderLock.inherited()
    if lock is not None:
        end_with_parent()  # the parent may be torchrun

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
    symptom="another process takes over a run: the first training continues and overwrites its checkpoints",
    after=check_lock,
    active=active,
)
