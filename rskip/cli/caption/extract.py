"""Extract features of a folder of images, to train captioning models on.

    rskip caption extract images --backbone tf_efficientnet_lite0 --output features/flickr8k
    rskip caption extract images --backbone resnet101 --backbone-weights resnet101.safetensors --output features/coco
    rskip caption extract trainval_36.tsv --backbone bottom-up --output features/coco

Repeat the command to resume an interrupted run or to add new images. An image that can't be read is skipped and listed
at the end; the exit status is then 2.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.captioning.options import FeatureSettings, ImageBatchSettings
from rskip.cli._options import add_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", type=Path, metavar="IMAGES", help="folder of images; subfolders are included")
    parser.add_argument(
        "--backbone", required=True, metavar="NAME",
        help="tf_efficientnet_lite0; another classifier of timm, such as resnet101; a detector of torchvision, such as "
        "fasterrcnn_resnet50_fpn; or bottom-up, if IMAGES is a file of published features (.tsv or .npz)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, metavar="STORE", help="folder to create, or to add to")
    parser.add_argument(
        "--backbone-weights", type=Path, metavar="FILE",
        help="weights of the backbone (default: from its package, the Hugging Face hub, or torch.hub)",
    )  # fmt: skip
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    parser.add_argument("--quiet", action="store_true", help="no progress or summary on stderr")
    add_options(parser.add_argument_group("features"), FeatureSettings)
    add_options(parser.add_argument_group("speed"), ImageBatchSettings)
