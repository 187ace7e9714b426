"""Lets only one training write to a --save-dir, and ends a training with the `rskip run` that started it.

A training refuses to save after another process took over its run or its --save-dir.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fairseq_compat.patch import Patch, wraps
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.files.folder_lock import FolderLock, LockLost, folder_lock
from rskip.machine.workers import end_with_parent

logger = logging.getLogger(__name__)


_held = ExitStack()  # the lock of this process's training; after a kill the kernel releases it


def check_lock(module: Any) -> None:
    """Wraps functions of `fairseq.checkpoint_utils`.

    `load_checkpoint` first locks the --save-dir, and `torch_persistent_save` checks the locks.
    """
    of_run = FolderLock.inherited()
    of_folder: list[FolderLock] = []
    if of_run is not None:
        end_with_parent()  # the parent may be torchrun

    @wraps(module, "load_checkpoint")
    def load_checkpoint(load: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
        _held.close()
        of_folder.clear()
        if trainer.is_data_parallel_master and not cfg.no_save:
            of_folder.extend(_locked(Path(cfg.save_dir)))
            _held.callback(of_folder.clear)
        return load(cfg, trainer, **options)

    @wraps(module, "torch_persistent_save")
    def torch_persistent_save(save: Any, *arguments: Any, **options: Any) -> None:
        with usage_errors((LockLost,)):
            for lock in filter(None, (of_run, *of_folder)):
                lock.check()
        save(*arguments, **options)


def release_lock(module: Any) -> None:
    """Wraps `fairseq.distributed.utils.call_main`, whose end releases the lock of the --save-dir."""

    @wraps(module, "call_main")
    def call_main(original: Any, *arguments: Any, **options: Any) -> None:
        with _held:
            original(*arguments, **options)


def _locked(folder: Path) -> list[FolderLock]:
    """The lock of a --save-dir, held until `_held` is closed; empty if the file system allows none.

    :raises UsageError: another training run holds the folder.
    """
    used = f"--save-dir {folder} is in use by another training run (process {{process}})"
    try:
        with usage_errors():
            return [_held.enter_context(folder_lock(folder, busy=f"{used}: wait for it, or choose another"))]
    except OSError as error:
        logger.warning(f"--save-dir {folder} can't be locked ({error}): don't start another training run with it")
        return []


RUN_LOCK = Patch(
    name="run-lock",
    symptom="two training runs with one --save-dir, or one that was taken over, overwrite each other's checkpoints",
    after={"fairseq.checkpoint_utils": check_lock, "fairseq.distributed.utils": release_lock},
)
