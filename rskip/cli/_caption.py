"""The work of `rskip caption` and `rskip caption extract`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rskip.captioning.backbones import load_backbone
from rskip.captioning.bottom_up import store_bottom_up
from rskip.captioning.captioner import Captioner
from rskip.captioning.drawing import drawn
from rskip.captioning.extraction import Extraction, extract_features
from rskip.captioning.files import caption_images, write_captions
from rskip.captioning.options import DETECTORS, FeatureSettings, ImageBatchSettings
from rskip.captioning.outputs import attention_files
from rskip.cli._model import model_path
from rskip.cli._options import refuse_flags, with_flags
from rskip.cli._resuming import stopping_tells
from rskip.cli.main import MISTAKE
from rskip.files.images import find_named_images
from rskip.files.whole import check_apart
from rskip.generation.options import SearchOptions
from rskip.machine.device import choose_device
from rskip.machine.progress import Progress
from rskip.machine.ranks import Ranks
from rskip.machine.terminal import duration


def load_captioner(args: argparse.Namespace) -> Captioner:
    """Loads the model on its device."""
    return Captioner.from_pretrained(
        model_path(args.model, task="captioning"),
        dictionary=args.dictionary,
        backbone_weights=args.backbone_weights,
        precision=args.precision,
        device=choose_device(args.device, Ranks()),
    )


def print_captions(
    args: argparse.Namespace, captioner: Captioner, images: Sequence[Path], options: SearchOptions, batch_size: int
) -> dict[str, str]:
    """Prints captions, and draws them if asked to. Returns the errors of images that can't be read."""
    folder = args.attention_folder
    options = replace(options, token_scores=args.format == "json", attention=folder is not None)
    found = caption_images(captioner, images, options, batch_size=batch_size)
    if folder is not None or args.sheet is not None:
        found = drawn(found, attention=folder and attention_files(images, folder), sheet=args.sheet)
    failed = {}
    for each in found:
        print(each.json() if args.format == "json" else each.text(), end="", flush=True)
        if each.caption is None:
            failed[str(each.path)] = each.error
    return failed


def write_file(
    args: argparse.Namespace, captioner: Captioner, images: Sequence[Path], options: SearchOptions, batch_size: int
) -> dict[str, str]:
    """Writes captions to --output. Returns the errors of images that can't be read."""
    progress = Progress("captions", total=len(images), unit=" images", log=30, shown=not args.quiet)
    with progress as bar, stopping_tells("rskip caption", [args.output], "the captions of {} images are"):
        return write_captions(
            captioner,
            images,
            args.output,
            replace(options, token_scores=True),
            batch_size=batch_size,
            precision=args.precision,
            resume=args.resume,
            report=lambda done: bar.update(done - bar.n),
        )


def extract(args: argparse.Namespace) -> int:
    """Makes the store, or resumes it."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused
    features, extraction = with_flags(FeatureSettings(), args), with_flags(ImageBatchSettings(), args)
    check_apart(args.output, args.images)
    if args.backbone == "bottom-up":
        names = ("backbone_weights", "size", "regions", "batch_size")
        flags = {f"--{name.replace('_', '-')}": getattr(args, name) for name in names}
        refuse_flags(flags, "is not for bottom-up, whose features are computed already")
        return _finish(args, store_bottom_up(args.images, args.output, dtype=features.dtype))
    grid = args.backbone not in DETECTORS
    refuse_flags({"--regions": args.regions} if grid else {"--size": args.size}, f"is not for {args.backbone}")
    images = find_named_images(args.images)
    device = choose_device(args.device, Ranks())
    backbone = load_backbone(args.backbone, args.backbone_weights, settings=features, device=device)
    return _finish(args, extract_features(images, backbone, args.output, settings=extraction, quiet=args.quiet))


def _finish(args: argparse.Namespace, result: Extraction) -> int:
    """Prints the result and returns the exit status."""
    if not args.quiet:
        twice = " or given twice" if args.backbone == "bottom-up" else ""
        kept = f", {result.kept:,} already there{twice}" if result.kept else ""
        seconds, speed = duration(result.seconds), result.done / max(result.seconds, 1e-9)
        took = f" in {seconds} ({speed:,.1f} images/s)" if result.done else ""
        print(f"{args.output}: {result.done:,} images added{took}{kept}", file=sys.stderr)
    for line in result.failed.values():
        print(line, file=sys.stderr)
    if result.failed:
        print(f"rskip caption extract: {len(result.failed):,} of {result.total:,} images failed", file=sys.stderr)
        return MISTAKE
    return 0
