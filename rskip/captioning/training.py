"""Trains a captioning model with fairseq-train: with cross-entropy, then self-critically if the recipe asks for it.

Every stage writes its output atomically, and is not repeated if its output exists. A stopped run can therefore be
resumed from any point.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rskip.captioning.data import data_arguments, ensure_data, ensure_features, prepare_commands
from rskip.captioning.recipe import CaptioningSettings
from rskip.settings.errors import SettingError
from rskip.tasks.fairseq.flags import FairseqFlags, check_fairseq_flags
from rskip.tasks.fairseq.log import TrainLog, read_train_log
from rskip.tasks.fairseq.training import FairseqTraining
from rskip.tasks.process import executable
from rskip.tasks.run import FIRST_STAGE, Run, precision_here

_STAGE = "rskip stage | "  # begins the line of train.log that names the next stage
_BEST = ("--eval-cider", "--best-checkpoint-metric", "cider", "--maximize-best-checkpoint-metric")


def check(runs: Sequence[Run[CaptioningSettings]]) -> None:
    """:raises SettingError: the images of an update can't be divided among the GPUs, or fairseq refuses a flag."""
    given = {run.name: run for run in runs}
    for run in given.values():
        for section, flags in run.settings.stages().items() if run.gpus > 1 else ():
            size = flags.get("batch-size")
            if type(size) is not int or size % run.gpus or flags.get("max-tokens") is not None:
                expected = f"images per update, a multiple of {run.gpus} GPUs, and no {section}.max-tokens"
                raise SettingError.of_value(f"{section}.batch-size", size, expected)
    before = ["data", "--user-dir", "rskip", "--task", "captioning", "--features", "constant"]
    check_fairseq_flags(
        [
            FairseqFlags(section=stage, program="fairseq-train", before=before, flags=flags, source=name)
            for name, run in given.items()
            for stage, flags in run.settings.stages().items()
        ]
    )


def train(run: Run[CaptioningSettings]) -> None:
    """Prepares captions and features, then trains every stage to its end with fairseq-train."""
    executable("fairseq-train")  # before the data are prepared
    ensure_data(run)
    ensure_features(run)
    print(f"{run.name}, seed {run.seed}", flush=True)
    for training in trainings_of(run):
        if not training.done:
            with run.folder.train_log.open("a", encoding="utf-8") as log:
                log.write(f"{_STAGE}{training.stage}\n")
        training.complete()


def trainings_of(run: Run[CaptioningSettings]) -> list[FairseqTraining]:
    """The trainings of the run's stages. Each starts from the final checkpoint of the previous one."""
    trainings: list[FairseqTraining] = []
    for stage, given in run.settings.stages().items():
        flags = dict(given)
        if run.gpus > 1:
            size = flags["batch-size"]
            assert isinstance(size, int), "`check` ensures it"
            flags["batch-size"] = size // run.gpus
        training = FairseqTraining(
            run=run,
            stage=stage,
            data=data_arguments(run.settings),
            flags=flags,
            options=["--keep-last-epochs", "1", *(_BEST if run.settings.checkpoint == "best" else ())],
            checkpoints=run.folder.path / ("checkpoints" if stage == FIRST_STAGE else f"checkpoints-{stage}"),
            finished=run.folder.path / f"{stage}.done",
            start=_trained(trainings[-1]) if trainings else None,
        )
        trainings.append(training)
    return trainings


def scored_file(run: Run[CaptioningSettings]) -> Path:
    """The final checkpoint of the last stage."""
    return _trained(trainings_of(run)[-1])


def _trained(training: FairseqTraining) -> Path:
    return training.checkpoints / f"checkpoint_{training.run.settings.checkpoint}.pt"


def commands(run: Run[CaptioningSettings]) -> list[list[str]]:
    """The commands to prepare, extract, initialise (if the connection needs it) and train. Scoring has no command."""
    stages = [each.commands(precision_here(each.precision, gpus=run.gpus)) for each in trainings_of(run)]
    return [*prepare_commands(run), *(command for stage in stages for command in stage)]


def read_log(run: Run[CaptioningSettings], *, ended: bool) -> dict[str, TrainLog]:
    """Reads the log of each stage that began.

    :param ended: whether each stage must be complete.
    :raises ValueError: the log of a required stage, or of all stages, is missing.
    """
    log = run.folder.train_log
    lines: dict[str, list[str]] = {stage: [] for stage in run.settings.stages()}
    with log.open(encoding="utf-8", errors="replace") as file:
        stage = next(iter(lines))
        for line in file:
            if line.startswith(_STAGE):
                stage = line.removeprefix(_STAGE).strip()
            elif stage in lines:
                lines[stage].append(line)
    read = {stage: read_train_log(each) for stage, each in lines.items()}
    found = {stage: each for stage, each in read.items() if each.parameters is not None and (each.curve or not ended)}
    if not found or (ended and len(found) < len(read)):
        raise ValueError(f"{log} records no training session: move {run.folder.path} away and run again")
    return found
