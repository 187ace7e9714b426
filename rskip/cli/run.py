"""Run a recipe: prepare the data, train, score, and leave a record."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rskip.cli._termination import termination_raises


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand's arguments."""
    parser.add_argument(
        "recipe", type=Path, help="recipe file, such as recipes/multi30k_en_de_2rskip_ln.yaml"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], metavar="N", help="one run each (default: 1)"
    )
    parser.add_argument(
        "--set", action="append", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change a setting, such as train.lr=0.003: another run, with a folder and records of its own",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=int, metavar="N",
        help="train on N GPUs of this machine, 0: on the CPU; the batches stay the recipe's (default: 1 if any)",
    )  # fmt: skip
    parser.add_argument(
        "--mirror",
        help="folder or URL that holds the corpus's upstream files; for images the folder that holds the dataset's own",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands and do nothing")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="then write one seed's weights to checkpoints/: of the lowest valid loss, or of images the first seed's",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the recipe once a seed; exit status 1 where a training failed by itself."""
    from rskip.experiments.process import CommandFailed
    from rskip.experiments.publish_run import publish_one
    from rskip.experiments.recipe import load_recipe
    from rskip.experiments.run import print_commands, run_recipe

    recipe = load_recipe(args.recipe, overrides=[text for group in args.overrides for text in group])
    if args.dry_run:
        print_commands(recipe, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
        return 0
    try:
        with termination_raises():
            records = run_recipe(recipe, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
            if args.publish:
                record = publish_one(recipe, records, mirror=args.mirror)
                published = record.published or {}
                size = f"{published['bytes'] / 1e6:.1f} MB in {published['dtype']}"
                print(f"checkpoints/{record.run}: seed {record.seed}, {size}")
                print(f"rskip zoo publish {record.run}   makes it a model of checkpoints.json, or updates that")
    except CommandFailed as error:
        print(f"rskip run: error: {error}", file=sys.stderr)
        return 1
    return 0
