"""Prevents and repairs checkpoints that are truncated because fairseq was killed while it copied them.

fairseq writes one checkpoint atomically, then copies it over checkpoint_best.pt and checkpoint_last.pt byte by byte. A
kill during the copy leaves a truncated file, which no later start can read. This patch makes the copy atomic. If
checkpoint_last.pt is already truncated, the training resumes from the newest intact checkpoint in the same folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zipfile
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps

_PICKLE = b"\x80"  # first byte of the format that torch.save wrote before PyTorch 1.6


def is_whole(path: str) -> bool:
    """Whether the file ends as torch.save writes it; True for the older format, which has no such end."""
    if zipfile.is_zipfile(path):
        return True
    with open(path, "rb") as file:
        return file.read(1) == _PICKLE


def newest_whole(folder: str, suffix: str) -> str | None:
    """The intact checkpoint with the most updates, among the names that fairseq gives, except checkpoint_last."""
    import torch

    name = re.compile(rf"checkpoint(\d+|_\d+_\d+|_best|\.best_.+){re.escape(suffix)}\.pt")
    paths = [os.path.join(folder, each) for each in sorted(os.listdir(folder)) if name.fullmatch(each)]

    updates: dict[str, int] = {}
    for path in filter(is_whole, paths):
        with contextlib.suppress(Exception):  # any error means that it is not a checkpoint of a training
            state = torch.load(path, map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=True)
            updates[path] = state["optimizer_history"][-1]["num_updates"]
    return max(updates, key=updates.__getitem__, default=None)


def copy_atomically(module: Any) -> None:
    """Wraps `PathManager.copy`. The wrapper changes nothing if iopath copies."""

    @wraps(module.PathManager, "copy")
    def copy(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if module.IOPathManager:
            return original(src_path, dst_path, overwrite)
        dst_path = os.path.realpath(dst_path)  # a link stays a link
        temporary = f"{dst_path}.tmp"
        try:
            shutil.copyfile(src_path, temporary)
            os.replace(temporary, dst_path)
        except BaseException:
            if os.path.lexists(temporary):
                os.remove(temporary)
            raise
        return dst_path


def restore_last(module: Any) -> None:
    """Wraps `load_checkpoint`, which resumes a training, and `load_checkpoint_to_cpu`, which reads a file."""

    @wraps(module, "load_checkpoint")
    def load_checkpoint(resume: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
        last = os.path.join(cfg.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
        if cfg.restore_file == "checkpoint_last.pt" and os.path.isfile(last) and not is_whole(last):
            newest = newest_whole(cfg.save_dir, trainer.checkpoint_suffix)
            if newest is None:
                raise UsageError(
                    f"{last} is truncated, and no other checkpoint is intact: delete it to train from the beginning"
                )
            if trainer.should_save_checkpoint_on_current_rank:
                module.logger.warning(f"{last} is truncated: resuming from {newest}, the newest intact checkpoint")
                module.PathManager.copy(newest, last, overwrite=True)
        return resume(cfg, trainer, **options)

    @wraps(module, "load_checkpoint_to_cpu")
    def load_checkpoint_to_cpu(read: Any, path: str, *args: Any, **options: Any) -> Any:
        if os.path.isfile(path) and not is_whole(path):
            raise UsageError(f"{path} is not a checkpoint, or is truncated: give another checkpoint")
        return read(path, *args, **options)


CUT_CHECKPOINTS = Patch(
    name="cut-checkpoints",
    symptom="a training run was killed while it copied checkpoint_last.pt: EOFError at the next start",
    after={"fairseq.file_io": copy_atomically, "fairseq.checkpoint_utils": restore_last},
)
