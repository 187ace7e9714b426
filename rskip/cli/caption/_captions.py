"""Captions images, for `rskip caption`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rskip.captioning.captioner import Captioner
from rskip.captioning.drawing import drawn
from rskip.captioning.files import caption_images, write_captions
from rskip.captioning.outputs import attention_files
from rskip.cli._model import model_path
from rskip.cli._resuming import stopping_tells
from rskip.cli.main import termination_tells
from rskip.files.resumable import how_to_resume
from rskip.generation.options import SearchOptions
from rskip.machine.device import choose_device
from rskip.machine.progress import Progress
from rskip.machine.ranks import Ranks


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
    with progress as bar, termination_tells(partial(how_to_resume, [args.output]), "rskip caption"):

        def report(done: int) -> None:
            bar.update(done - bar.n)

        with stopping_tells("rskip caption", "the captions of {} images are"):
            return write_captions(
                captioner,
                images,
                args.output,
                replace(options, token_scores=True),
                batch_size=batch_size,
                precision=args.precision,
                resume=args.resume,
                report=report,
            )
