"""Arguments of the commands of `rskip vision`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.vision.datasets import DATASETS

PRECISIONS = ("auto", "float32", "bfloat16")


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
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
