"""Show what a binarised corpus holds: sizes, lengths, vocabulary, unknown tokens, examples; a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  rskip inspect data-bin/multi30k-en-de
  rskip inspect data-bin/multi30k-en-de --picture lengths.svg --examples 10 --seed 2
  rskip inspect data-bin/multi30k-en-de --json > figures.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "data",
        type=Path,
        metavar="DATA",
        help="folder that `rskip prepare` or fairseq-preprocess made, or one with its shards (shard1, shard2, ...)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object instead")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw lengths and coverage too; the name ends in .png or .svg"
    )
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="random pairs (default: %(default)s)")
    parser.add_argument("--lopsided", type=int, default=3, metavar="N", help="lopsided pairs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="draws the examples (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Prints the inspection, and draws it where asked."""
    import json

    from rskip.corpora.inspection import inspect_data
    from rskip.corpora.inspection.text_form import text_form

    for name in ("examples", "lopsided"):
        if (number := getattr(args, name)) < 0:
            raise ValueError(f"--{name} is {number}: expected 0 or more")
    if args.picture is not None:
        from rskip.corpora.inspection.picture import draw
        from rskip.files.picture import check_picture

        check_picture(args.picture)
    inspection = inspect_data(args.data, lopsided=args.lopsided, examples=args.examples, seed=args.seed)
    if args.picture is not None:
        draw(inspection, args.picture)
    if args.json:
        print(json.dumps(inspection.figures, indent=2, ensure_ascii=False))
    else:
        print(text_form(inspection), end="")
