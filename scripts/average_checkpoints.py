#!/usr/bin/env python3
"""Averages checkpoints, with the flags of fairseq's average_checkpoints.py. `rskip average` can do more."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.checkpoint import average_to_file, best_checkpoints, last_checkpoints
from rskip.checkpoint.average import best_scored


def build_parser() -> argparse.ArgumentParser:
    """The parser of fairseq's flags."""
    parser = argparse.ArgumentParser(description="Average the parameters of checkpoints.")
    parser.add_argument(
        "--inputs", type=Path, nargs="+", required=True, help="checkpoints, or the folder of a run"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the averaged checkpoint")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--num-epoch-checkpoints", type=int, metavar="N", help="last N epoch checkpoints of the folder"
    )
    number.add_argument(
        "--num-update-checkpoints", type=int, metavar="N", help="last N update checkpoints of the folder"
    )
    number.add_argument(
        "--num-best-checkpoints", type=int, metavar="N", help="best N checkpoint.best_* files of the folder"
    )
    parser.add_argument(
        "--checkpoint-upper-bound", type=int, metavar="N", help="ignore checkpoints after this epoch or update"
    )
    return parser


def select(args: argparse.Namespace) -> list[Path]:
    """The checkpoints that the flags name."""
    number, by = args.num_epoch_checkpoints, "epoch"
    if number is None:
        number, by = args.num_update_checkpoints, "update"
    if number is not None:
        if len(args.inputs) != 1:
            raise ValueError(
                f"--inputs has {len(args.inputs)} paths: expected one folder of checkpoints"
            )
        return last_checkpoints(args.inputs[0], number, by=by, up_to=args.checkpoint_upper_bound)
    if args.checkpoint_upper_bound is not None:
        raise ValueError("--checkpoint-upper-bound needs --num-epoch-checkpoints or --num-update-checkpoints")
    if args.num_best_checkpoints:
        if len(args.inputs) == 1 and args.inputs[0].is_dir():
            return best_checkpoints(args.inputs[0], args.num_best_checkpoints)
        return best_scored(args.inputs, args.num_best_checkpoints)
    return args.inputs


def main() -> int:
    """Averages the checkpoints and returns the exit status."""
    args = build_parser().parse_args()
    try:
        inputs = select(args)
        print("averaging checkpoints:", *inputs)
        average_to_file(inputs, args.output)
    except (ValueError, OSError) as error:
        print(f"average_checkpoints.py: error: {error}", file=sys.stderr)
        return 2
    print(f"Finished writing averaged checkpoint to {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
