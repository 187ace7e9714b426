"""Runs of tasks whose command trains with the loop of `rskip.tasks.training`, such as `rskip vision train`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
from torch import nn

from rskip.checkpoint.config_file import CONFIG, WEIGHTS
from rskip.tasks.process import launched
from rskip.tasks.run import Run, once
from rskip.tasks.task import Outcome
from rskip.tasks.training_folder import TrainingFolder, read_points

DECIMALS = 4


def training_folder(run: Run[Any]) -> TrainingFolder:
    """The folder that the command writes."""
    return TrainingFolder(run.folder.path / "training")


def scored_file(run: Run[Any]) -> Path:
    """The last iterate, which is scored."""
    return training_folder(run).path / WEIGHTS


def finished(run: Run[Any]) -> bool:
    """Whether the training is complete: it writes config.json last. Without its model it is done again."""
    return (training_folder(run).path / CONFIG).exists() and scored_file(run).exists()


def evaluation_file(run: Run[Any]) -> Path:
    """The file with the evaluation of the last iterate, which is scored."""
    return run.folder.path / "evaluation.json"


def command(run: Run[Any], words: Sequence[str], settings: Mapping[str, Any], *flags: str) -> list[str]:
    """The command that trains, under `torchrun` for several GPUs. It resumes from a checkpoint.

    :param words: the command's name and data.
    :param settings: those that differ from the command's defaults.
    """
    changes = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
    return [
        *launched("rskip", gpus=run.gpus),
        *words,
        *(["--set", *changes] if changes else []),
        *("--seed", str(run.seed), "--output", str(training_folder(run).path)),
        *flags,
        *run.probe_flags,
        *device_flags(run.gpus),
    ]


def device_flags(gpus: int) -> list[str]:
    """The flag for the CPU. On GPUs it is not needed, since each process chooses its own GPU."""
    return ["--device", "cpu"] if gpus == 0 else []


def train(run: Run[Any], command: Callable[[str], list[str]]) -> None:
    """Trains to the end, from the last checkpoint if there is one.

    :param command: the command for a precision.
    """
    print(f"{run.name}, seed {run.seed}", flush=True)
    if not finished(run):
        evaluation_file(run).unlink(missing_ok=True)  # of a model that was deleted
        precision = run.begin_session(asked=run.settings.train.precision)
        run.train(command(precision), resumed=training_folder(run).checkpoint.exists())


def score(
    run: Run[Any],
    evaluate: Callable[[], dict[str, Any]],
    *,
    metrics: Mapping[str, str],
    points: type[Any],
    untrained: nn.Module,
    data: Mapping[str, Any],
) -> Outcome:
    """Evaluates the last iterate in float32, unless that is done already. A diverged training has none, and no metrics.

    :param evaluate: returns the content of `evaluation_file`.
    :param metrics: the outcome's metrics, and their names in that content. `train_loss` is that of the last point.
    :param untrained: a model of the same size, on any device.
    """
    file, figures = training_folder(run).curve, dict[str, float]()
    if finished(run):
        evaluation = once(evaluation_file(run), evaluate)
        curve = read_points(file, points)
        figures = {name: evaluation[of] for name, of in metrics.items()} | {"train_loss": curve[-1].train_loss}
    else:
        curve = read_points(file, points) if file.exists() else []
    names = list(points.__dataclass_fields__)
    end = vars(curve[-1]) if curve else {"seconds": 0.0, "epoch": 0, "iteration": None}
    epochs = {"epochs": end["epoch"]} if "epoch" in names else {}
    training = {"seconds": end["seconds"], **epochs, "iterations": end["iteration"]}
    if curve:
        rate = next(name for name in names if name.endswith("_per_second"))
        training[rate] = round(fmean(getattr(point, rate) for point in curve), 1)
    return Outcome(
        metrics={name: round(value, DECIMALS) for name, value in figures.items()},
        curve=[msgspec.to_builtins(point) for point in curve],
        training=training,
        parameters=sum(parameter.numel() for parameter in untrained.parameters()),
        data=data,
    )
