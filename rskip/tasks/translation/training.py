"""Training a translation model: fairseq-train to its end, then the average of its last checkpoints.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was
stopped anywhere goes on from there.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from rskip.checkpoint import last_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.files.whole import atomic_file
from rskip.tasks.process import executable
from rskip.tasks.run import Run
from rskip.tasks.translation.batches import KEY, plan_batches
from rskip.tasks.translation.data import data_arguments, device_arguments
from rskip.tasks.translation.settings import Flag, TranslationSettings, flags_to_arguments
from rskip.tasks.translation.train_log import TrainingProgress

LOW_PRECISION = {"bf16": "bfloat16", "fp16": "float16", "amp": "float16"}  # fairseq-train's flags
_LOG_INTERVAL = 100  # updates between two lines in train.log


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


def train_command(run: Run[TranslationSettings], *, precision: str) -> list[str]:
    """`fairseq-train`, under `torchrun` for several GPUs; it resumes by itself from `checkpoint_last.pt`.

    :param precision: "float32" trains in it whatever the recipe's flags ask for.
    :raises ValueError: an update can't be divided among so many (`rskip.tasks.translation.batches`).
    """
    settings, gpus = run.settings, run.gpus
    flags = {name: value for name, value in settings.train.items() if name not in (KEY, "user-dir")}
    if (batches := plan_batches(settings.train, gpus=gpus)) is not None:
        flags |= {"max-tokens": batches.max_tokens, "update-freq": batches.update_freq}
    if precision == "float32":
        flags |= dict.fromkeys(flags.keys() & LOW_PRECISION, False)
    program = ["fairseq-train"]
    if gpus > 1:
        program = ["torchrun", "--standalone", "--nproc-per-node", str(gpus), executable("fairseq-train")]
    return [
        *program,
        *data_arguments(settings),
        *("--seed", str(run.seed), "--save-dir", str(checkpoints(run))),
        *_kept_checkpoints(settings),
        *("--log-format", "json"),
        *([] if "log-interval" in settings.train else ["--log-interval", str(_LOG_INTERVAL)]),
        *([] if gpus > 1 else device_arguments(gpu=gpus > 0)),
        *flags_to_arguments(flags),
    ]


def average_command(run: Run[TranslationSettings]) -> list[str]:
    """`rskip average`, over the last checkpoints."""
    return [
        "rskip",
        "average",
        *("--last", str(run.settings.average.last)),
        *(["--by", "update"] if run.settings.averages_by == "update" else []),
        str(checkpoints(run)),
        *("--output", str(averaged(run))),
    ]


def checkpoints(run: Run[TranslationSettings]) -> Path:
    """The folder of fairseq's checkpoints."""
    return run.folder.path / "checkpoints"


def averaged(run: Run[TranslationSettings]) -> Path:
    """The averaged checkpoint, which is scored."""
    return run.folder.path / "averaged.pt"


def recipe_precision(train: Mapping[str, Flag]) -> str:
    """What the flags of fairseq-train ask for: "float32", "bfloat16" or "float16"."""
    return next((name for flag, name in LOW_PRECISION.items() if train.get(flag)), "float32")


def _kept_checkpoints(settings: TranslationSettings) -> list[str]:
    last = str(settings.average.last)
    if settings.averages_by == "update":
        return ["--keep-interval-updates", last, "--no-epoch-checkpoints"]
    return ["--keep-last-epochs", last]
