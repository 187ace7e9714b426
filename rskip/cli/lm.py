"""Train language models with any residual connection, on a public text or your own.

`rskip run RECIPE` also evaluates each seed and writes run records. `rskip generate` generates text.
"""

from __future__ import annotations

import argparse

from rskip.cli._options import add_options
from rskip.cli._training import add_training_arguments
from rskip.cli.main import run_module
from rskip.language_modeling.settings import TrainingSettings

COMMANDS = ("train",)
EXAMPLES = """examples:
  rskip prepare shakespeare-char
  rskip lm train data-bin/shakespeare-char --connection 2rskip+ln --output runs/shakespeare
  rskip generate --model runs/shakespeare --prompt ROMEO:

in several processes, which share each batch:
  torchrun --standalone --nproc-per-node 2 -m rskip lm train data-bin/shakespeare-char --output runs/two"""


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("data", metavar="DATA", help="folder from `rskip prepare`")
    add_training_arguments(parser, change="clip_norm=null")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    add_options(parser.add_argument_group("model and training"), TrainingSettings)


def run_train(args: argparse.Namespace) -> int | None:
    """Train one language model on a prepared text.

    The defaults are those of nanoGPT's quick start for a cheap computer. To resume from the last checkpoint in
    --output, repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0 if the training is complete, 143 or
    130 if a signal stopped it, 2 for a mistake in the arguments, 8 if the training diverged (a loss or weight is
    infinite or NaN).
    """
    return run_module("rskip.cli._lm", "train_model", args)
