"""Trains a language-model run with `rskip lm train` in a separate process, and lists the run's commands."""

from __future__ import annotations

import json
from pathlib import Path

from rskip.checkpoint.config_file import WEIGHTS
from rskip.language_modeling.recipe import LanguageModelingSettings
from rskip.language_modeling.run_data import data_folder, ensure_data
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training.curve import CurvePoint, read_curve
from rskip.machine.terminal import duration
from rskip.tasks.loop_folder import LoopFolder
from rskip.tasks.process import launched
from rskip.tasks.run import EpochLines, Run, precision_here


def train(run: Run[LanguageModelingSettings]) -> None:
    """Trains to the end, from the last checkpoint if there is one."""
    ensure_data(run.settings, mirror=run.mirror)
    print(f"{run.name}, seed {run.seed}", flush=True)
    folder = training_folder(run)
    if not scored_file(run).exists():
        run.train(
            lambda precision: train_command(run, precision=precision),
            asked=run.settings.train.precision,
            resumed=folder.checkpoint.exists(),
            report=EpochLines(folder.curve, lambda path: [_line(point) for point in read_curve(path)]),
        )


def training_folder(run: Run[LanguageModelingSettings]) -> LoopFolder:
    """The folder that `rskip lm train` writes."""
    return LoopFolder(run.folder.path / "training")


def scored_file(run: Run[LanguageModelingSettings]) -> Path:
    """The last iterate, which is scored."""
    return training_folder(run).path / WEIGHTS


def commands(run: Run[LanguageModelingSettings]) -> list[list[str]]:
    """The equivalent commands of a run: prepare and train."""
    precision = precision_here(run.settings.train.precision, gpus=run.gpus)
    folder, name = data_folder(run.settings), run.settings.data
    mirror = [] if run.mirror is None else ["--mirror", run.mirror]
    prepare = [] if str(folder) == name else [["rskip", "prepare", name, "--output", str(folder), *mirror]]
    return [*prepare, train_command(run, precision=precision)]


def train_command(run: Run[LanguageModelingSettings], *, precision: str) -> list[str]:
    """The command `rskip lm train`, under `torchrun` for several GPUs. It resumes from a checkpoint.

    :param precision: precision of the training, which overrides the settings.
    """
    defaults, settings = TrainingSettings().to_dict(), {**run.settings.train.to_dict(), "precision": precision}
    changes = [f"{name}={json.dumps(value)}" for name, value in settings.items() if value != defaults[name]]
    return [
        *launched("rskip", gpus=run.gpus),
        *("lm", "train", str(data_folder(run.settings)), *(["--set", *changes] if changes else [])),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *run.probe_flags,
        *(["--device", "cpu"] if run.gpus == 0 else []),
    ]


def _line(point: CurvePoint) -> str:
    return (
        f"  iteration {point.iteration:6,}   train loss {point.train_loss:.4f}   valid loss {point.valid_loss:.4f}   "
        f"{duration(point.seconds)}"
    )
