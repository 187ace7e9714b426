"""Train and evaluate ResNets and vision transformers with any residual connection, on CIFAR or your own images.

`rskip run RECIPE` does both for each seed and writes run records.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.cli._options import add_options
from rskip.cli._training import add_training_arguments
from rskip.cli.main import run_module
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import OWN, TrainingSettings

COMMANDS = ("train", "evaluate")
PRECISIONS = ("auto", "float32", "bfloat16")
TRAIN_EXAMPLES = """examples:
  rskip vision train cifar10_fast/preact20_1xskip --seed 2 --output runs/baseline-2 --download
  rskip vision train --depth 20 --connection sas:alpha_bias=3,beta_bias=-3 --output runs/sas20 --data ~/data
  rskip vision train --connection 2rskip+ln --epochs 30 --schedule one_cycle --lr 0.2 --nesterov --output runs/short
  rskip vision train --data photos --connection 2rskip+ln --output runs/photos
  rskip vision train --data photos --model resnet18 --size 128 --connection 2rskip+ln --output runs/photos18

on several GPUs of this machine (on a CPU, leave out --sync-batch-norm); the batch size is that of all GPUs together:
  torchrun --standalone --nproc-per-node 2 -m rskip vision train RECIPE --sync-batch-norm --output runs/two"""
EVALUATE_EXAMPLES = """examples:
  rskip vision evaluate runs/preact110
  rskip vision evaluate checkpoints/cifar10_resnet20/preact20_2rskip_ln --plot confusion.svg
  rskip vision evaluate runs/photos --data photos
  rskip vision evaluate runs/preact110 --depth 110 --connection 2rskip+ln --split train --json"""
# the settings that have flags; all have --set
MODEL = (
    "dataset", "model", "size", "depth", "connection", "shortcut", "shortcut_input", "block",
    "features", "heads", "patch",
)  # fmt: skip
SCHEDULE = (
    "iterations", "epochs", "batch_size", "schedule", "lr", "warmup_lr", "optimiser", "momentum", "nesterov",
    "weight_decay", "decay", "label_smoothing", "flip", "clip_norm",
)  # fmt: skip
MACHINE = ("channels_last", "compile", "sync_batch_norm", "evaluate_every", "save_every")


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = TRAIN_EXAMPLES
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="recipe of kind vision: RECIPE/VARIANT, or FILE.yaml/VARIANT"
    )
    change = "warmup_iterations=0 milestones=[8000,12000]"
    add_training_arguments(parser, change=change, without_probe="the recipe's probe")
    _add_data_arguments(parser)
    add_options(parser.add_argument_group("model"), TrainingSettings, only=MODEL)
    add_options(parser.add_argument_group("training"), TrainingSettings, only=SCHEDULE)
    machine = parser.add_argument_group("machine")
    add_options(machine, TrainingSettings, only=MACHINE)
    machine.add_argument(
        "--precision", choices=PRECISIONS, default="auto",
        help="number format of the model. auto: that of the run in --output, otherwise of the recipe, otherwise "
        "bfloat16, or float32 on a CPU without bfloat16 instructions (default: %(default)s)",
    )  # fmt: skip


def run_train(args: argparse.Namespace) -> int | None:
    """Train one model.

    The settings come from a recipe of kind vision, from options, or from both; options override the recipe. The
    defaults are the papers' settings (64,000 iterations of 128 images). For your own images (--data), the command
    chooses the defaults by the number of images (docs/vision.md) and prints them.

    To resume from the last checkpoint in --output, repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0
    if the training is complete, 143 or 130 if a signal stopped it, 2 for a mistake in the arguments, 8 if the training
    diverged (a loss or weight is infinite or NaN).
    """
    return run_module("rskip.cli._vision", "train_model", args)


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EVALUATE_EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="folder or file of a model, or a name from `rskip zoo list`")
    parser.add_argument(
        "--split", choices=("test", "valid", "train", "all"),
        help="split to evaluate; valid and all: only for your own images (default: test; for your own images the first "
        "that exists of test, valid, all)",
    )  # fmt: skip
    _add_data_arguments(parser)
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="images per batch (default: 500, or 50 above 64 x 64 pixels)"
    )
    parser.add_argument(
        "--recalibrate", action="store_true",
        help="first recompute the statistics of batch normalisation, over the augmented training images",
    )  # fmt: skip
    parser.add_argument(
        "--precision", choices=PRECISIONS[1:],
        help="number format of the model (default: that of its training; float32 for published weights)",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="also plot the confusion matrix, to a .png or .svg file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    expected = parser.add_argument_group(
        "expected model", "The command ends with an error if the model differs from these."
    )
    expected.add_argument(
        "--dataset", choices=(*DATASETS, OWN), help="dataset that it was trained on; images: your own"
    )
    expected.add_argument("--depth", type=int, metavar="N", help="its depth, such as 110")
    expected.add_argument("--connection", metavar="SPEC", help="its connection, such as 2rskip+ln")


def run_evaluate(args: argparse.Namespace) -> int | None:
    """Evaluate a model: error, table of classes, confusions, images per second.

    MODEL is the folder of a training run (the command reads its model.safetensors, or checkpoint.pt if the run is
    unfinished), one of these files, a folder of published weights, or a name from `rskip zoo list`.
    """
    return run_module("rskip.cli._vision", "evaluate_model", args)


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --data, --download and --device."""
    folders = " or ".join(each.folder for each in DATASETS.values())
    parser.add_argument(
        "--data", type=Path, metavar="PATH",
        help="your own images: FOLDER/CLASS/IMAGE.jpg, FOLDER/train/CLASS/IMAGE.jpg with FOLDER/valid or FOLDER/test, "
        f"or an .npz file; or the folder of a dataset: {folders}, whose files may be "
        "compressed (.xz, .gz) (default: DATASET in $RSKIP_DATA, or in ~/.cache/rskip/data)",
    )  # fmt: skip
    parser.add_argument("--download", action="store_true", help="download the dataset if it is missing or damaged")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
