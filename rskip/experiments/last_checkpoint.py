"""Making sure that a killed training can go on."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from rskip.checkpoint import last_checkpoints
from rskip.files.whole import atomic_file


def mend_last_checkpoint(folder: Path) -> None:
    """Puts the newest numbered checkpoint in the place of a `checkpoint_last.pt` that was cut off.

    fairseq writes `checkpointN.pt` or `checkpoint_N_M.pt` whole or not at all, then copies it over
    `checkpoint_last.pt`; a kill during the copy leaves a part of it, and the next start would fail. Does nothing in a
    folder without checkpoints.
    """
    last = folder / "checkpoint_last.pt"
    for partial in folder.glob("*.pt.tmp"):
        partial.unlink()
    if not last.exists() or zipfile.is_zipfile(last):
        return
    newest = [path for by in ("epoch", "update") for path in _newest(folder, by=by)]
    if not newest:  # none was written yet
        last.unlink()
        return
    with atomic_file(last) as temporary:
        shutil.copyfile(max(newest, key=lambda path: path.stat().st_mtime_ns), temporary)


def _newest(folder: Path, *, by: str) -> list[Path]:
    try:
        return last_checkpoints(folder, 1, by=by)
    except ValueError:  # there is none
        return []
