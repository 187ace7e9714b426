"""Refuses checkpoint paths that don't point to a file or can't be written.

fairseq-train silently trains from scratch if `--restore-file` or `--continue-once` names no file, or if
`--finetune-from-model` names a folder. Jobs that restart themselves pass the path of a checkpoint_last.pt, which
doesn't exist at their first start. A missing file of that name therefore still means training from scratch. Other wrong
paths used to end in a traceback.
"""

from __future__ import annotations

import os
from typing import Any

from fairseq_compat.one_line_errors import UsageError
from fairseq_compat.patch import Patch, wraps

LAST = "checkpoint_last.pt"
_FOLDER = (
    "this is a folder; give a file in it, such as its checkpoint_best.pt (`rskip export fairseq` makes one from a "
    "model folder of rskip)"
)


def check_paths(module: Any) -> None:
    """Wraps `load_checkpoint` and `verify_checkpoint_directory` of `fairseq.checkpoint_utils`."""
    paths = module.PathManager

    def check(flag: str, path: str) -> None:
        if not paths.isfile(path):
            problem = _FOLDER if paths.exists(path) else "file not found; give a checkpoint or leave it out"
            raise UsageError(f"{flag} is {path}: {problem}")

    @wraps(module, "load_checkpoint")
    def load_checkpoint(load: Any, cfg: Any, trainer: Any, **options: Any) -> Any:
        suffix = trainer.checkpoint_suffix or ""
        restored = cfg.restore_file.replace(".pt", f"{suffix}.pt")
        if os.path.basename(cfg.restore_file) != LAST or os.path.isdir(restored):
            check("--restore-file", restored)
        if cfg.restore_file == LAST and not paths.exists(os.path.join(cfg.save_dir, restored)):
            for name in ("continue_once", "finetune_from_model"):
                if (start := getattr(cfg, name, None)) is not None:
                    check("--" + name.replace("_", "-"), start)
        return load(cfg, trainer, **options)

    @wraps(module, "verify_checkpoint_directory")
    def verify_checkpoint_directory(verify: Any, save_dir: str) -> None:
        try:
            verify(save_dir)
        except OSError as error:
            raise UsageError(f"--save-dir is {save_dir}: {error.strerror}; give a folder to write to") from error


CHECKPOINT_PATHS = Patch(
    name="checkpoint-paths",
    symptom="--restore-file names a missing file, or a folder: trains from scratch, exit status 0",
    after={"fairseq.checkpoint_utils": check_paths},
)
