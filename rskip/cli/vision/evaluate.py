"""Evaluate a model: error, table of classes, most confused classes, images per second.

MODEL is the folder of a training run (the command reads its model.safetensors, or checkpoint.pt if the run is
unfinished), one of these files, a folder of published weights, or a name from `rskip zoo list`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.cli.vision._arguments import PRECISIONS, add_data_arguments
from rskip.vision.datasets import DATASETS
from rskip.vision.settings import OWN

EXAMPLES = """examples:
  rskip vision evaluate runs/preact110
  rskip vision evaluate checkpoints/cifar10_resnet20/preact20_2rskip_ln --plot confusion.svg
  rskip vision evaluate runs/photos --data photos
  rskip vision evaluate runs/preact110 --depth 110 --connection 2rskip+ln --split train --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL", help="folder or file of a model, or a name from `rskip zoo list`")
    parser.add_argument(
        "--split", choices=("test", "valid", "train", "all"),
        help="split to evaluate; valid and all: only for your own images (default: test; for your own images the first "
        "that exists of test, valid, all)",
    )  # fmt: skip
    add_data_arguments(parser)
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
