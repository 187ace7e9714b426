"""Run a recipe: prepare the corpus, train, average, translate, score, and leave a record."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path


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
        help="train on N GPUs of this machine, 0: on the CPU; an update has the same tokens on all (default: 1 if any)",
    )  # fmt: skip
    parser.add_argument("--mirror", help="folder or URL that holds the corpus's upstream files")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and do nothing")
    parser.add_argument(
        "--publish",
        action="store_true",
        help="then write the weights of the seed with the lowest valid loss to checkpoints/",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the recipe once a seed; exit status 1 where a training failed by itself."""
    from rskip.experiments.process import CommandFailed
    from rskip.experiments.publish import publish
    from rskip.experiments.recipe import load_recipe
    from rskip.experiments.run import print_commands, run_recipe

    recipe = load_recipe(args.recipe, overrides=[text for group in args.overrides for text in group])
    if args.dry_run:
        print_commands(recipe, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
        return 0
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        records = run_recipe(recipe, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
        if args.publish:
            best = min(records, key=lambda record: record.metrics["valid_loss"])
            published = publish(recipe, seed=best.seed, mirror=args.mirror).published or {}
            print(f"checkpoints/{best.run}: seed {best.seed}, {published['bytes'] / 1e6:.1f} MB in float16")
    except CommandFailed as error:
        print(f"rskip run: error: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0
