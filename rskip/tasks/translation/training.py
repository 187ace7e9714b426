"""Training a translation model: fairseq-train to its end, then the average of its last checkpoints.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was
stopped anywhere goes on from there.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from rskip.checkpoint import last_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.files.whole import atomic_file
from rskip.tasks.run import Run
from rskip.tasks.translation.batches import plan_batches
from rskip.tasks.translation.commands import averaged, checkpoints, recipe_precision, train_command
from rskip.tasks.translation.settings import TranslationSettings
from rskip.tasks.translation.train_log import TrainingProgress


def train(run: Run[TranslationSettings]) -> None:
    """Trains to the end with fairseq-train, from the last checkpoint where there is one."""
    finished = run.folder.path / "trained"
    if finished.exists():
        return
    folder = checkpoints(run)
    folder.mkdir(parents=True, exist_ok=True)
    restore_last_checkpoint(folder)
    if batches := plan_batches(run.settings.train, gpus=run.gpus):
        print(batches, flush=True)
    run.train(
        lambda precision: train_command(run, precision=precision),
        asked=recipe_precision(run.settings.train),
        resumed=(folder / "checkpoint_last.pt").exists(),
        report=TrainingProgress(run.folder.train_log),
    )
    with atomic_file(finished) as temporary:
        temporary.write_text("training came to its end\n")


def average(run: Run[TranslationSettings]) -> None:
    """Averages the last checkpoints into the run's averaged.pt."""
    if not averaged(run).exists():
        settings = run.settings
        last = last_checkpoints(checkpoints(run), settings.average.last, by=settings.averages_by)
        average_to_file(last, averaged(run))


def restore_last_checkpoint(folder: Path) -> None:
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
