"""Train one language model on a prepared text.

The defaults are those of nanoGPT's quick start for a cheap computer. To resume from the last checkpoint in --output,
repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0 if the training is complete, 143 or 130 if a signal
stopped it, 2 for a mistake in the arguments, 8 if the training diverged (a loss or weight is infinite or NaN).
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rskip.cli._training import add_training_arguments, changes_of_set, probe_of

if TYPE_CHECKING:
    from rskip.language_modeling.settings import TrainingSettings

EXAMPLES = """examples:
  rskip prepare shakespeare-char
  rskip lm train data-bin/shakespeare-char --connection 2rskip+ln --output runs/shakespeare
  rskip generate --model runs/shakespeare --prompt ROMEO:

in several processes, which share each batch:
  torchrun --standalone --nproc-per-node 2 -m rskip lm train data-bin/shakespeare-char --output runs/two"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.cli._options import add_options
    from rskip.language_modeling.settings import TrainingSettings

    parser.epilog = EXAMPLES
    parser.add_argument("data", metavar="DATA", help="folder from `rskip prepare`")
    add_training_arguments(parser, change="clip_norm=null")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    add_options(parser.add_argument_group("model and training"), TrainingSettings)


def run(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    from rskip.files.folder_lock import FolderLock
    from rskip.language_modeling.data import load_data
    from rskip.language_modeling.training import train
    from rskip.machine.ranks import Ranks
    from rskip.machine.workers import end_with_parent
    from rskip.settings.user_dir import suggested_command
    from rskip.tasks.loop import Diverged, Interrupted, process_group
    from rskip.tasks.process import DIVERGED

    if FolderLock.inherited():
        end_with_parent()  # that may be torchrun
    ranks = Ranks.from_environment()
    with process_group(ranks, args.device):
        with ranks.together():
            settings = training_settings(args)
            data = load_data(args.data)
            observer = probe_of(args, settings.connection, ranks)
        try:
            result = train(
                settings, data=data, folder=args.output, seed=args.seed, device=args.device, observer=observer
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
            f"{result.model_file}: {result.name}: validation loss {last.valid_loss:.4f} nats per {unit} after "
            f"{result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"generate text: {generation}"
        )
    return 0


def training_settings(args: argparse.Namespace) -> TrainingSettings:
    """The settings of --set and of the flags, which take precedence."""
    from rskip.cli._options import given_options
    from rskip.language_modeling.settings import TrainingSettings
    from rskip.settings.check import convert

    return convert({**changes_of_set(args), **given_options(args, TrainingSettings)}, TrainingSettings)
