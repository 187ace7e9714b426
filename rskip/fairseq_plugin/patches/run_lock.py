"""Lets only one training write to a --save-dir, and ends a training with the `rskip run` that started it.

A training refuses to save after another process took over its run or its --save-dir.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fairseq_compat.patch import Patch
from rskip.fairseq_plugin.usage_errors import usage_errors
from rskip.files.folder_lock import FolderLock, LockLost, folder_lock
from rskip.machine.workers import end_with_parent

logger = logging.getLogger(__name__)


_held = ExitStack()  # the lock of this process's training; after a kill the kernel releases it


def check_lock(module: Any) -> None:
    """Wraps functions of `fairseq.checkpoint_utils` and `fairseq.distributed.utils`.

    `load_checkpoint` first locks the --save-dir, `torch_persistent_save` checks the locks, and the end of `call_main`
    releases that of the --save-dir.
    """
    if hasattr(module, "call_main"):
        module.call_main = _releasing(module.call_main)
        return
    load, save = module.load_checkpoint, module.torch_persistent_save
    of_run = FolderLock.inherited()
    of_folder: list[FolderLock] = []
    if of_run is not None:
        end_with_parent()  # the parent may be torchrun

    @functools.wraps(load)
    def load_checkpoint(cfg: Any, trainer: Any, **options: Any) -> Any:
        _held.close()
        of_folder.clear()
        if trainer.is_data_parallel_master and not cfg.no_save:
            of_folder.extend(_locked(Path(cfg.save_dir)))
            _held.callback(of_folder.clear)
        return load(cfg, trainer, **options)

    @functools.wraps(save)
    def torch_persistent_save(*arguments: Any, **options: Any) -> None:
        with usage_errors((LockLost,)):
            for lock in filter(None, (of_run, *of_folder)):
                lock.check()
        save(*arguments, **options)

    module.load_checkpoint, module.torch_persistent_save = load_checkpoint, torch_persistent_save


def _releasing(call_main: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(call_main)
    def releasing(*arguments: Any, **options: Any) -> None:
        with _held:
            call_main(*arguments, **options)

    return releasing


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
    modules=("fairseq.checkpoint_utils", "fairseq.distributed.utils"),
    symptom="two training runs with one --save-dir, or one that was taken over, overwrite each other's checkpoints",
    after=check_lock,
)
