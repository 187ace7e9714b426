"""Average the parameters of checkpoints, or convert one between fairseq's .pt and safetensors."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  rskip average --last 10 checkpoints --output averaged.pt
  rskip average --best 5 checkpoints --output averaged.safetensors --dtype float16
  rskip average --inputs model.safetensors --output model.pt"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="the last N checkpoints of FOLDER")
    which.add_argument(
        "--best", type=int, metavar="N", help="the N of FOLDER with the best validation scores"
    )
    which.add_argument(
        "--inputs", type=Path, nargs="+", metavar="FILE", help="these checkpoints (.pt, .safetensors)"
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="a run's folder of checkpoints"
    )
    parser.add_argument(
        "--by", choices=("epoch", "update"), help="which checkpoints of FOLDER (default: epoch)"
    )
    parser.add_argument(
        "--up-to", type=int, metavar="N", help="none after this epoch (with --by update: this update)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="averaged.pt for fairseq, or a .safetensors file",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="of the output (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Writes the average and says what went into it."""
    import torch

    from rskip.checkpoint import average_to_file, best_checkpoints, last_checkpoints

    if args.inputs:
        for given, flag in ((args.folder, "FOLDER"), (args.by, "--by"), (args.up_to, "--up-to")):
            if given is not None:
                raise ValueError(f"{flag} {given} goes with --last or --best, not with --inputs")
        inputs = args.inputs
    else:
        if args.folder is None:
            raise ValueError(
                f"--{'last' if args.last is not None else 'best'} needs the folder of checkpoints"
            )
        select, number = (
            (last_checkpoints, args.last) if args.last is not None else (best_checkpoints, args.best)
        )
        inputs = select(args.folder, number, by=args.by or "epoch", up_to=args.up_to)
    average_to_file(inputs, args.output, dtype=getattr(torch, args.dtype))
    print(f"averaged {len(inputs)}: {' '.join(path.name for path in inputs)} -> {args.output}")
