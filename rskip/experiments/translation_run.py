"""One translation run: train, average, generate.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was
stopped anywhere goes on from there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from rskip.atomic_file import atomic_file
from rskip.checkpoint import last_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.experiments.commands import generate_command, train_command
from rskip.experiments.environment import describe_environment, gpu_name, training_threads
from rskip.experiments.last_checkpoint import mend_last_checkpoint
from rskip.experiments.process import run_logged
from rskip.experiments.progress import TrainingProgress
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.train_log import start_line
from rskip.experiments.translation_settings import TranslationSettings


def train(settings: TranslationSettings, *, seed: int, folder: RunFolder, data: Path, lock: int) -> None:
    """Trains to the end with fairseq-train, from the last checkpoint where there is one.

    lock: descriptor that the training inherits, so that the folder stays locked as long as it lives.
    """
    if folder.trained.exists():
        return
    command = train_command(
        settings, data=data, checkpoints=folder.checkpoints, seed=seed, gpu=gpu_name() is not None
    )
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    mend_last_checkpoint(folder.checkpoints)
    resumed = (folder.checkpoints / "checkpoint_last.pt").exists()
    print(f"{'resuming' if resumed else 'training'}; log: {folder.train_log}", flush=True)
    with folder.train_log.open("a", encoding="utf-8") as log:
        log.write(start_line({"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **describe_environment()}))
    run_logged(
        command,
        log=folder.train_log,
        environment=_environment(),
        inherited=[lock],
        on_poll=TrainingProgress(folder.train_log),
    )
    with atomic_file(folder.trained) as temporary:
        temporary.write_text("training came to its end\n")


def average(settings: TranslationSettings, *, folder: RunFolder) -> None:
    """Averages the checkpoints of the last epochs into the run's averaged.pt."""
    if folder.averaged.exists():
        return
    average_to_file(last_checkpoints(folder.checkpoints, settings.average.last), folder.averaged)


def generate(settings: TranslationSettings, *, folder: RunFolder, data: Path) -> Path:
    """Translates the evaluated split with the averaged checkpoint; returns fairseq-generate's output."""
    output = folder.generated(settings.evaluate.split)
    if not output.exists():
        print(f"translating {settings.evaluate.split}", flush=True)
        log = folder.path / "generate.log"
        log.unlink(missing_ok=True)
        translate(settings, checkpoint=folder.averaged, data=data, output=output, log=log)
    return output


def translate(
    settings: TranslationSettings, *, checkpoint: Path, data: Path, output: Path, log: Path
) -> None:
    """Writes what fairseq-generate prints for the evaluated split to `output`, its messages to `log`."""
    command = generate_command(settings, data=data, checkpoint=checkpoint, gpu=gpu_name() is not None)
    with atomic_file(output) as temporary:
        run_logged(command, log=log, environment=_environment(), output=temporary)


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": str(training_threads()), "PYTHONUNBUFFERED": "1"}
