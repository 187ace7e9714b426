"""Making sure that a killed training can go on."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from rskip.atomic_file import atomic_file
from rskip.checkpoint import last_checkpoints


def mend_last_checkpoint(folder: Path) -> None:
    """Puts the newest epoch's checkpoint in the place of a `checkpoint_last.pt` that was cut off.

    fairseq writes `checkpointN.pt` whole or not at all, then copies it over `checkpoint_last.pt`; a kill
    during the copy leaves a part of it, and the next start would fail. Does nothing in a folder without
    checkpoints.
    """
    last = folder / "checkpoint_last.pt"
    for partial in folder.glob("*.pt.tmp"):
        partial.unlink()
    if not last.exists() or zipfile.is_zipfile(last):
        return
    try:
        (newest,) = last_checkpoints(folder, 1)
    except ValueError:  # none was written yet
        last.unlink()
        return
    with atomic_file(last) as temporary:
        shutil.copyfile(newest, temporary)
