"""Average the parameters of checkpoints, or convert one between fairseq's .pt and safetensors."""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip import checkpoint
from rskip.cli._options import refuse_flags

EXAMPLES = """examples:
  rskip average --last 10 checkpoints --output averaged.pt
  rskip average --best 5 checkpoints --output averaged.safetensors --dtype float16
  rskip average --inputs model.safetensors --output model.pt"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", type=int, metavar="N", help="average the last N checkpoints of FOLDER")
    which.add_argument(
        "--best", type=int, metavar="N",
        help="average the N checkpoints of FOLDER with the best validation scores: fairseq's checkpoint.best_* files "
        "if there are any and neither --by nor --up-to is given",
    )  # fmt: skip
    which.add_argument(
        "--inputs", type=Path, nargs="+", metavar="FILE", help="average these checkpoints (.pt, .safetensors)"
    )
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="a run's folder of checkpoints")
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
        help="file to write: .pt for fairseq (translation and language models of fairseq), or .safetensors",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        default="float32",
        help="number format of the output (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> None:
    """Writes the average and prints its inputs."""
    import torch  # takes a second, and --help doesn't need it

    if args.inputs:
        flags = {"FOLDER": args.folder, "--by": args.by, "--up-to": args.up_to}
        refuse_flags(flags, "needs --last or --best, not --inputs")
        inputs = args.inputs
    else:
        which, number = ("last", args.last) if args.last is not None else ("best", args.best)
        if args.folder is None:
            raise ValueError(f"--{which} needs FOLDER, the folder of checkpoints")
        select = checkpoint.last_checkpoints if which == "last" else checkpoint.best_checkpoints
        series = {} if args.by is None else {"by": args.by}
        inputs = select(args.folder, number, **series, up_to=args.up_to)
    checkpoint.average_to_file(inputs, args.output, dtype=getattr(torch, args.dtype))
    print(f"averaged {len(inputs)}: {' '.join(path.name for path in inputs)} -> {args.output}")
