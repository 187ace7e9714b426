"""Extracts features of images, for `rskip caption extract`."""

from __future__ import annotations

import argparse
import sys
import warnings

from rskip.captioning.backbones import DETECTORS, load_backbone
from rskip.captioning.bottom_up import store_bottom_up
from rskip.captioning.extraction import Extraction, extract_features
from rskip.captioning.options import FeatureSettings, ImageBatchSettings
from rskip.cli._options import refuse_flags, with_flags
from rskip.cli.main import MISTAKE
from rskip.files.images import find_named_images
from rskip.files.whole import check_apart
from rskip.machine.device import choose_device
from rskip.machine.progress import Progress
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration


def run(args: argparse.Namespace) -> int:
    """Makes the store, or resumes it."""
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
