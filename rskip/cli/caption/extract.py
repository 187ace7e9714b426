"""Extract features of a folder of images, to train captioning models on.

    rskip caption extract images --backbone tf_efficientnet_lite0 --output features/flickr8k
    rskip caption extract images --backbone resnet101 --backbone-weights resnet101-cd907fc2.pth --output features/coco
    rskip caption extract trainval_36.tsv --backbone bottom-up --output features/coco

Repeat the command to resume an interrupted run or to add new images. An image that can't be read is skipped and listed
at the end; the exit status is then 2.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rskip.cli.main import MISTAKE

if TYPE_CHECKING:
    from rskip.captioning.extraction import Extraction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.captioning.options import FeatureSettings, ImageBatchSettings
    from rskip.cli._options import add_options

    parser.add_argument("images", type=Path, metavar="IMAGES", help="folder of images; subfolders are included")
    parser.add_argument(
        "--backbone", required=True, metavar="NAME",
        help="tf_efficientnet_lite0; a torchvision classifier, such as resnet101; a torchvision detector, such as "
        "fasterrcnn_resnet50_fpn; or bottom-up, if IMAGES is a file of published features (.tsv or .npz)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, metavar="STORE", help="folder to create, or to add to")
    parser.add_argument(
        "--backbone-weights", type=Path, metavar="FILE",
        help="weights of the backbone (default: from its package, or torchvision's)",
    )  # fmt: skip
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    parser.add_argument("--quiet", action="store_true", help="no progress or summary on stderr")
    add_options(parser.add_argument_group("features"), FeatureSettings)
    add_options(parser.add_argument_group("speed"), ImageBatchSettings)


def run(args: argparse.Namespace) -> int:
    """Makes the store, or resumes it."""
    from rskip.captioning.backbones import DETECTORS, load_backbone
    from rskip.captioning.bottom_up import store_bottom_up
    from rskip.captioning.extraction import extract_features
    from rskip.captioning.options import FeatureSettings, ImageBatchSettings
    from rskip.cli._options import refuse_flags, with_flags
    from rskip.files.images import find_named_images
    from rskip.files.whole import check_apart
    from rskip.machine.device import choose_device
    from rskip.machine.progress import Progress
    from rskip.machine.ranks import Ranks

    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused
    features, extraction = with_flags(FeatureSettings(), args), with_flags(ImageBatchSettings(), args)
    check_apart(args.output, args.images)
    if args.backbone == "bottom-up":
        flags = {"--backbone-weights": args.backbone_weights, "--size": args.size, "--regions": args.regions}
        refuse_flags(flags, "is not for bottom-up, whose features are computed already")
        return finish(args, store_bottom_up(args.images, args.output, dtype=features.dtype))
    grid = args.backbone not in DETECTORS
    refuse_flags({"--regions": args.regions} if grid else {"--size": args.size}, f"is not for {args.backbone}")
    images = find_named_images(args.images)
    device = choose_device(args.device, Ranks())
    backbone = load_backbone(args.backbone, args.backbone_weights, settings=features, device=device)
    with Progress("features", total=len(images), unit=" images", log=30, shown=not args.quiet) as bar:

        def report(done: Extraction) -> None:
            bar.update(done.done + done.kept + len(done.failed) - bar.n)

        result = extract_features(images, backbone, args.output, settings=extraction, report=report)
    return finish(args, result)


def finish(args: argparse.Namespace, result: Extraction) -> int:
    """Prints the result and returns the exit status."""
    from rskip.machine.terminal import duration

    if not args.quiet:
        kept = f", {result.kept:,} already there" if result.kept else ""
        seconds, speed = duration(result.seconds), result.done / max(result.seconds, 1e-9)
        took = f" in {seconds} ({speed:,.1f} images/s)" if result.done else ""
        print(f"{args.output}: {result.done:,} images added{took}{kept}", file=sys.stderr)
    for line in result.failed.values():
        print(line, file=sys.stderr)
    if result.failed:
        print(f"rskip caption extract: {len(result.failed):,} of {result.total:,} images failed", file=sys.stderr)
        return MISTAKE
    return 0
