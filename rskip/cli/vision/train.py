"""Train one model.

The settings come from a recipe of kind vision, from options, or from both; options override the recipe. The defaults
are the papers' settings (64,000 iterations of 128 images). For your own images (--data), the command chooses the
defaults by the number of images (docs/vision.md) and prints them.

To resume from the last checkpoint in --output, repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0 if
the training is complete, 143 or 130 if a signal stopped it, 2 for a mistake in the arguments, 8 if the training
diverged (a loss or weight is infinite or NaN).
"""

from __future__ import annotations

import argparse

from rskip.cli._options import add_options
from rskip.cli._training import add_training_arguments
from rskip.cli.vision._arguments import PRECISIONS, add_data_arguments
from rskip.vision.settings import TrainingSettings

EXAMPLES = """examples:
  rskip vision train cifar10_fast/preact20_1xskip --seed 2 --output runs/baseline-2 --download
  rskip vision train --depth 20 --connection sas:alpha_bias=3,beta_bias=-3 --output runs/sas20 --data ~/data
  rskip vision train --connection 2rskip+ln --epochs 30 --schedule one_cycle --lr 0.2 --nesterov --output runs/short
  rskip vision train --data photos --connection 2rskip+ln --output runs/photos
  rskip vision train --data photos --model resnet18 --size 128 --connection 2rskip+ln --output runs/photos18

on several GPUs of this machine (on a CPU, leave out --sync-batch-norm); the batch size is that of all GPUs together:
  torchrun --standalone --nproc-per-node 2 -m rskip vision train RECIPE --sync-batch-norm --output runs/two"""

# the settings that have flags; all have --set
MODEL = ("dataset", "model", "size", "depth", "connection", "shortcut", "shortcut_input", "block")
SCHEDULE = (
    "iterations", "epochs", "batch_size", "schedule", "lr", "warmup_lr", "momentum", "nesterov", "weight_decay",
    "decay", "label_smoothing", "flip", "clip_norm",
)  # fmt: skip
MACHINE = ("channels_last", "compile", "sync_batch_norm", "evaluate_every", "save_every")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="recipe of kind vision: RECIPE/VARIANT, or the path of a file"
    )
    change = "warmup_iterations=0 milestones=[8000,12000]"
    add_training_arguments(parser, change=change, without_probe="the recipe's probe")
    add_data_arguments(parser)
    add_options(parser.add_argument_group("model"), TrainingSettings, only=MODEL)
    add_options(parser.add_argument_group("training"), TrainingSettings, only=SCHEDULE)
    machine = parser.add_argument_group("machine")
    add_options(machine, TrainingSettings, only=MACHINE)
    machine.add_argument(
        "--precision", choices=PRECISIONS, default="auto",
        help="number format of the model. auto: that of the run in --output, otherwise of the recipe, otherwise "
        "bfloat16, or float32 on a CPU without bfloat16 instructions (default: %(default)s)",
    )  # fmt: skip
