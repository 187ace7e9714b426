"""Making sure that a killed training can go on."""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

from rskip.atomic_file import atomic_file


def mend_last_checkpoint(folder: Path) -> None:
    """Puts the newest whole epoch checkpoint in the place of a `checkpoint_last.pt` that was cut off.

    fairseq writes `checkpointN.pt` whole or not at all, then copies it over `checkpoint_last.pt`; a kill
    during the copy leaves a part of it, and the next start would fail. Does nothing in a folder without
    checkpoints.
    """
    last = folder / "checkpoint_last.pt"
    for partial in folder.glob("*.pt.tmp"):
        partial.unlink()
    if not last.exists() or zipfile.is_zipfile(last):
        return
    whole = epoch_checkpoints(folder)
    if whole:
        with atomic_file(last) as temporary:
            shutil.copyfile(whole[-1], temporary)
    else:
        last.unlink()


def epoch_checkpoints(folder: Path) -> list[Path]:
    """The `checkpointN.pt` files of a folder, oldest epoch first."""
    numbered = [
        (int(m[1]), path) for path in folder.glob("checkpoint*.pt") if (m := _EPOCH.fullmatch(path.name))
    ]
    return [path for _, path in sorted(numbered)]


_EPOCH = re.compile(r"checkpoint(\d+)\.pt")
