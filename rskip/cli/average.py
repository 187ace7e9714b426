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
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="average the last N checkpoints of FOLDER")
    which.add_argument(
        "--best", type=int, metavar="N", help="average the N checkpoints of FOLDER with the best validation scores"
    )
    which.add_argument(
        "--inputs", type=Path, nargs="+", metavar="FILE", help="average these checkpoints (.pt, .safetensors)"
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="FOLDER", help="a run's folder of checkpoints"
    )
    parser.add_argument(
        "--by", choices=("epoch", "update"), help="use checkpoints of epochs or of updates (default: epoch)"
    )
    parser.add_argument(
        "--up-to", type=int, metavar="N", help="use no checkpoint after epoch N (with --by update: after update N)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write: .pt for fairseq, or .safetensors",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="number format of the output (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Writes the average and prints its inputs."""
    import torch  # loads PyTorch, which --help doesn't need

    from rskip.checkpoint import average_to_file, best_checkpoints, last_checkpoints
    from rskip.cli._options import refuse_flags

    if args.inputs:
        flags = {"FOLDER": args.folder, "--by": args.by, "--up-to": args.up_to}
        refuse_flags(flags, "needs --last or --best, not --inputs")
        inputs = args.inputs
    else:
        if args.folder is None:
            raise ValueError(
                f"--{'last' if args.last is not None else 'best'} needs FOLDER, the folder of checkpoints"
            )
        select, number = (
            (last_checkpoints, args.last) if args.last is not None else (best_checkpoints, args.best)
        )
        inputs = select(args.folder, number, by=args.by or "epoch", up_to=args.up_to)
    average_to_file(inputs, args.output, dtype=getattr(torch, args.dtype))
    print(f"averaged {len(inputs)}: {' '.join(path.name for path in inputs)} -> {args.output}")
