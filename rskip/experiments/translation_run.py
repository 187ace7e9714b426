"""One translation run: train, average, generate.

Every stage's output is whole or absent, and a stage whose output is there is not repeated, so a run that was
stopped anywhere goes on from there.
"""

from __future__ import annotations

import time
from pathlib import Path

from rskip.checkpoint import last_checkpoints
from rskip.checkpoint.average import average_to_file
from rskip.experiments.commands import generate_command, train_command
from rskip.experiments.last_checkpoint import mend_last_checkpoint
from rskip.experiments.process import child_environment, run_logged
from rskip.experiments.progress import TrainingProgress
from rskip.experiments.run_folder import RunFolder
from rskip.experiments.tokens_per_update import plan_batches
from rskip.experiments.train_log import start_line
from rskip.experiments.training_precision import choose_precision, recipe_precision
from rskip.experiments.translation_settings import TranslationSettings
from rskip.files.whole import atomic_file
from rskip.machine.environment import describe_environment


def train(
    settings: TranslationSettings, *, seed: int, folder: RunFolder, data: Path, gpus: int, lock: int
) -> None:
    """Trains to the end with fairseq-train, from the last checkpoint where there is one.

    gpus: how many, 0 for the CPU; lock: descriptor that the training inherits, so that the folder stays locked as long
    as it lives.
    """
    if folder.trained.exists():
        return
    folder.keep_processes(max(gpus, 1))
    precision = folder.keep_precision(choose_precision(settings.train, gpus=gpus))
    command = train_command(
        settings, data=data, checkpoints=folder.checkpoints, seed=seed, gpus=gpus, precision=precision
    )
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    mend_last_checkpoint(folder.checkpoints)
    resumed = (folder.checkpoints / "checkpoint_last.pt").exists()
    print(f"{'resuming' if resumed else 'training'}; log: {folder.train_log}", flush=True)
    if precision != (asked := recipe_precision(settings.train)):
        print(f"in {precision}: the recipe says {asked}, which is slower on a processor that doesn't multiply it")
    if batches := plan_batches(settings.train, gpus=gpus):
        print(batches, flush=True)
    environment = {**describe_environment(), "precision": precision}
    if gpus > 0:
        environment["machine"]["gpus"] = gpus
    else:
        environment["machine"]["gpu"] = None
    with folder.train_log.open("a", encoding="utf-8") as log:
        log.write(start_line({"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **environment}))
    run_logged(
        command,
        log=folder.train_log,
        environment=child_environment(processes=max(gpus, 1)),
        inherited=[lock],
        on_poll=TrainingProgress(folder.train_log),
    )
    with atomic_file(folder.trained) as temporary:
        temporary.write_text("training came to its end\n")


def average(settings: TranslationSettings, *, folder: RunFolder) -> None:
    """Averages the last checkpoints into the run's averaged.pt."""
    if folder.averaged.exists():
        return
    last = last_checkpoints(folder.checkpoints, settings.average.last, by=settings.averages_by)
    average_to_file(last, folder.averaged)


def generate(settings: TranslationSettings, *, folder: RunFolder, data: Path, gpus: int) -> Path:
    """Translates the evaluated split with the averaged checkpoint; returns fairseq-generate's output."""
    output = folder.generated(settings.evaluate.split)
    if not output.exists():
        print(f"translating {settings.evaluate.split}", flush=True)
        log = folder.path / "generate.log"
        log.unlink(missing_ok=True)
        translate(settings, checkpoint=folder.averaged, data=data, output=output, log=log, gpus=gpus)
    return output


def translate(
    settings: TranslationSettings, *, checkpoint: Path, data: Path, output: Path, log: Path, gpus: int
) -> None:
    """Writes what fairseq-generate prints for the evaluated split to `output`, its messages to `log`.

    gpus: 0 for the CPU; one is used of any other number.
    """
    command = generate_command(settings, data=data, checkpoint=checkpoint, gpu=gpus > 0)
    with atomic_file(output) as temporary:
        run_logged(command, log=log, environment=child_environment(processes=1), output=temporary)
