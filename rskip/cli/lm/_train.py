"""Trains a language model, for `rskip lm train`."""

from __future__ import annotations

import argparse
import sys

from rskip.checkpoint.config_file import WEIGHTS
from rskip.cli._options import given_options
from rskip.cli._training import changes_of_set, probe_of
from rskip.files.folder_lock import FolderLock
from rskip.language_modeling.data import load_data
from rskip.language_modeling.settings import TrainingSettings
from rskip.language_modeling.training import train
from rskip.machine.ranks import Ranks
from rskip.machine.workers import end_with_parent
from rskip.settings.check import convert
from rskip.settings.user_dir import suggested_command
from rskip.tasks.process import DIVERGED
from rskip.tasks.training import Diverged, Interrupted, process_group


def run(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    if FolderLock.inherited():
        end_with_parent()  # that may be torchrun
    ranks = Ranks.from_environment()
    with process_group(ranks, args.device):
        with ranks.together():
            settings = convert({**changes_of_set(args), **given_options(args, TrainingSettings)}, TrainingSettings)
            data = load_data(args.data)
            observer = probe_of(args, settings.connection, ranks)
        try:
            result = train(
                settings,
                data=data,
                folder=args.output,
                seed=args.seed,
                device=args.device,
                tracker=args.tracker,
                observer=observer,
            )
        except Interrupted as error:
            print(f"rskip lm train: {error}", file=sys.stderr)
            return error.status
        except Diverged as error:
            print(f"rskip lm train: error: {error}", file=sys.stderr)
            return DIVERGED
    if ranks.first:
        last, unit = result.points[-1], data.tokens.unit
        generation = suggested_command("rskip", "generate", "--model", str(args.output))
        print(
            f"{args.output / WEIGHTS}: {result.name}: validation loss {last.valid_loss:.4f} nats per {unit} after "
            f"{result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"generate text: {generation}"
        )
    return 0
