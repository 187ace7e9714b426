"""A training that `rskip run` has started ends with it, and saves nothing once another has taken its run over."""

from __future__ import annotations

import functools
from typing import Any

from fairseq import checkpoint_utils

from rskip.fairseq_plugin.one_line_errors import UsageError
from rskip.files.folder_lock import FolderLock, LockLost
from rskip.machine.workers import end_with_parent


def install() -> None:
    """Where this process was started by `rskip run`, has fairseq look at the run's lock before it saves."""
    lock, save = FolderLock.inherited(), checkpoint_utils.torch_persistent_save
    if lock is None or hasattr(save, "__wrapped__"):
        return
    end_with_parent()  # that may be torchrun

    @functools.wraps(save)
    def checked_save(*arguments: Any, **options: Any) -> None:
        try:
            lock.check()
        except LockLost as error:
            raise UsageError(str(error)) from None
        save(*arguments, **options)

    checkpoint_utils.torch_persistent_save = checked_save
