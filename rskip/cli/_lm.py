"""Trains a language model, for `rskip lm train`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from rskip.checkpoint.config_file import WEIGHTS
from rskip.cli._looped import run_training
from rskip.cli._options import given_options
from rskip.cli._training import changes_of_set
from rskip.language_modeling.data import load_data
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training import train
from rskip.machine.ranks import Ranks
from rskip.settings.check import convert
from rskip.settings.user_dir import suggested_command
from rskip.tasks.training import TrainingRun


def train_model(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    unit = ""

    def begin(ranks: Ranks) -> tuple[TrainingSettings, Callable[..., TrainingRun[Any]]]:
        nonlocal unit
        with ranks.together():
            settings = convert({**changes_of_set(args), **given_options(args, TrainingSettings)}, TrainingSettings)
            data = load_data(args.data)
        unit = data.tokens.unit
        return settings, partial(train, data=data)

    def done(result: TrainingRun[Any]) -> str:
        generation = suggested_command("rskip", "generate", "--model", str(args.output))
        return (
            f"{args.output / WEIGHTS}: {result.name}: validation loss {result.points[-1].valid_loss:.4f} nats per "
            f"{unit} after {result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"generate text: {generation}"
        )

    return run_training(args, "lm train", begin, done)
