"""Caption images with a captioning model: one line per image, or JSON lines for a folder.

    rskip caption dog.jpg cat.jpg --model MODEL
    rskip caption images --model MODEL --output captions.jsonl
    rskip caption dog.jpg --model MODEL --attention attention
    rskip caption a.jpg b.jpg c.jpg d.jpg e.jpg f.jpg --model MODEL --sheet sheet.png

`rskip caption extract` extracts the features that models are trained on; write ./extract for a folder of that name. An
image that can't be read is skipped and listed at the end; the exit status is then 2. With --output FILE, the command
writes one line of JSON per image, with its caption or its error. It writes to FILE.partial, which becomes FILE when
complete. --resume continues an interrupted run, and retries the failed images of a complete one.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rskip.captioning.options import CAPTION_OPTIONS, FeatureSettings, ImageBatchSettings
from rskip.captioning.outputs import MOST_ON_A_SHEET, attention_files, check_outputs, written_lines
from rskip.cli._options import add_options, refuse_flags, with_flags
from rskip.cli.main import MISTAKE, loading_for_good, run_module, termination_raises
from rskip.files.images import find_images
from rskip.files.plot import check_plot
from rskip.files.resumable import check_unfinished, complete, how_to_resume, unfinished_parts
from rskip.files.whole import output_file
from rskip.generation.options import SearchOptions

COMMANDS = ("extract",)
PRECISIONS = ("float32", "bfloat16", "int8")
NOT_FLAGS = ("token_scores", "attention", "max_length_a")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="an image, or a folder of images")
    parser.add_argument(
        "--model", required=True, metavar="MODEL",
        help="model folder, fairseq's .pt file, or a name from `rskip zoo list`",
    )  # fmt: skip

    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", type=Path, metavar="FILE", help="file for JSON lines (default: text on standard output)"
    )
    output.add_argument(
        "--resume", action="store_true",
        help="resume an interrupted run with the same images and settings, or retry its failed images; captions in a "
        "complete FILE stay as they are, whatever their settings were",
    )  # fmt: skip
    output.add_argument(
        "--format", choices=("text", "json"),
        help="format of standard output: path, tab and caption (a path with control characters is a JSON string), or "
        "JSON lines",
    )  # fmt: skip
    output.add_argument(
        "--attention", dest="attention_folder", type=Path, metavar="FOLDER",
        help="draw the decoder's attention for each word: FOLDER/NAME.png, or NAME-2.png for a second image NAME",
    )  # fmt: skip
    output.add_argument("--sheet", type=Path, metavar="FILE", help="draw all images with their captions in one file")
    output.add_argument("--quiet", action="store_true", help="no progress on stderr")

    model = parser.add_argument_group("model")
    model.add_argument(
        "--dictionary", type=Path, metavar="PATH", help="dictionary for a .pt file: dict.txt, or the folder of the data"
    )
    model.add_argument(
        "--backbone-weights", type=Path, metavar="FILE",
        help="weights of the backbone (default: from its package, the Hugging Face hub, or torch.hub)",
    )  # fmt: skip
    model.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="number format of the model (default: %(default)s)"
    )
    model.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    add_options(model, ImageBatchSettings, only=["batch_size"])

    search = parser.add_argument_group("search")
    searched = [field.name for field in fields(SearchOptions) if field.name not in NOT_FLAGS]
    add_options(search, SearchOptions, only=searched, defaults=CAPTION_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Captions the images. Exit status 2 if one could not be read."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata; images that are too large are refused
    options, batches = with_flags(CAPTION_OPTIONS, args), with_flags(ImageBatchSettings(), args)
    if not options.sampling:
        refuse_flags({"--seed": args.seed}, "is only for --sampling")
    images = find_images(args.images)
    check_output(args, images)
    there = args.output is not None and args.resume and args.output.exists()
    if there and not unfinished_parts(args.output) and not written_lines(args.output)[1]:
        if not args.quiet:
            print(complete(args.output), file=sys.stderr)
        return 0
    with termination_raises(how_to_resume([args.output] if args.output else [])), loading_for_good():
        from rskip.cli import _caption  # loads PyTorch, which --help and mistakes don't need

        captioner = _caption.load_captioner(args)
    if args.output is None:
        failed = _caption.print_captions(args, captioner, images, options, batches.batch_size)
    else:
        failed = _caption.write_file(args, captioner, images, options, batches.batch_size)
    for error in failed.values():
        print(error, file=sys.stderr)
    if failed:
        again = "" if args.output is None else "; when you have repaired them, --resume retries them"
        print(f"rskip caption: {len(failed):,} of {len(images):,} images failed{again}", file=sys.stderr)
    return MISTAKE if failed else 0


def check_output(args: argparse.Namespace, images: Sequence[Path]) -> None:
    """Raises an error, before any work, if outputs exclude each other, can't be drawn, or would overwrite a file."""
    if args.output is not None:
        flags = {"--attention": args.attention_folder, "--sheet": args.sheet, "--format text": args.format == "text"}
        refuse_flags(flags, "can't be combined with --output, which writes JSON lines")
        args.output = output_file(args.output)
        check_unfinished(args.output, 0, 1, resume=args.resume)
    else:
        refuse_flags({"--resume": args.resume}, "needs --output FILE")
    if args.sheet is not None:
        check_plot(args.sheet)
        if len(images) > MOST_ON_A_SHEET:
            raise ValueError(f"--sheet draws at most {MOST_ON_A_SHEET} images, but got {len(images):,}")
    drawn: list[Path] = []
    if args.attention_folder is not None:
        check_plot(args.attention_folder / "image.png")
        drawn = attention_files(images, args.attention_folder)
    single = {"--output": args.output, "--sheet": args.sheet}
    files = {flag: [path] for flag, path in single.items() if path is not None}
    check_outputs(images, {**files, "--attention": drawn})


def add_extract_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", type=Path, metavar="IMAGES", help="folder of images; subfolders are included")
    parser.add_argument(
        "--backbone", required=True, metavar="NAME",
        help="tf_efficientnet_lite0; another classifier of timm, such as resnet101; a detector of torchvision, such as "
        "fasterrcnn_resnet50_fpn; or bottom-up, if IMAGES is a .tsv file or a folder of .npz files",
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


def run_extract(args: argparse.Namespace) -> int | None:
    """Extract features of a folder of images, to train captioning models on.

        rskip caption extract images --backbone tf_efficientnet_lite0 --output features/flickr8k
        rskip caption extract images --backbone resnet101 --backbone-weights w.safetensors --output features/coco
        rskip caption extract trainval_36.tsv --backbone bottom-up --output features/coco

    Repeat the command to resume an interrupted run or to add new images. An image that can't be read is skipped and
    listed at the end; the exit status is then 2.
    """
    return run_module("rskip.cli._caption", "extract", args)
