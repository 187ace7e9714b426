"""Run a recipe: prepare the data, train, score, and write a run record."""

from __future__ import annotations

import argparse
import sys

from rskip.cli.main import termination_raises
from rskip.experiments.publish import export_model, records_seen
from rskip.experiments.recipe import find_recipe, load_recipes
from rskip.experiments.runner import missing_runs, print_commands, run_recipes, run_words, variants_table
from rskip.experiments.sweep import run_sweep
from rskip.settings.user_dir import suggested_command
from rskip.tasks.process import CommandFailed
from rskip.vision.datasets import DATASETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE",
        help="RECIPE or RECIPE/VARIANT in recipes/, such as multi30k_en_de/sas; or FILE.yaml or FILE.yaml/VARIANT",
    )  # fmt: skip
    parser.add_argument(
        "--variants", nargs="+", metavar="VARIANT",
        help="variants of the file to run, by name or shell pattern (default: list them, and which of --seeds are "
        "finished)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1], metavar="N", help="random seeds, one run per seed (default: 1)"
    )
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change a setting, such as train.lr=0.003; the run then has its own folder and run records",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=int, metavar="N",
        help="number of GPUs; 0: the CPU; the batch size stays that of the recipe (default: 1 if available)",
    )  # fmt: skip
    parser.add_argument(
        "--mirror",
        help="folder or URL with the upstream files of the corpus; for a dataset of images, the folder with "
        f"{' or '.join(each.folder for each in DATASETS.values())} in it, or with the files of that folder (also as "
        ".xz or .gz)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print the commands of each run, without running them")
    how.add_argument(
        "--commands", action="store_true",
        help="print one `rskip run` command per unfinished run, for Slurm and other queues, without running them",
    )  # fmt: skip
    how.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="do the unfinished runs in parallel with Ray, on this machine, or on the cluster with the head node "
        "HOST:PORT (auto: the cluster of this machine); runs may share a GPU (docs/recipes.md)",
    )  # fmt: skip
    parser.add_argument(
        "--publish",
        action="store_true",
        help="then write the weights of one seed to checkpoints/: the seed with the lowest validation loss, or for "
        "images and language models the first one",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the variants once per seed. Exit status 1 if a training failed by itself, or if a run on Ray failed."""
    path, variant = find_recipe(args.recipe)
    recipes = load_recipes(args.recipe, variants=args.variants, overrides=args.overrides)
    if args.variants is None and variant is None and recipes[0].variant is not None:
        print(f"{path} has {len(recipes)} variant{'s' * (len(recipes) != 1)}; run them with --variants NAME ...")
        print(variants_table(recipes, seeds=args.seeds))
        return 0
    if args.dry_run:
        print_commands(recipes, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
        return 0
    if args.commands:
        for recipe, each in missing_runs(recipes, seeds=args.seeds):
            words = run_words(recipe, each.seed, overrides=args.overrides, mirror=args.mirror, gpus=args.gpus)
            print(suggested_command(*words))
        return 0
    if args.ray is not None:
        with termination_raises():
            failures = run_sweep(
                recipes, seeds=args.seeds, address=args.ray, overrides=args.overrides, mirror=args.mirror,
                gpus=args.gpus,
            )  # fmt: skip
        for failure in failures:
            print(f"rskip run: error: {failure}", file=sys.stderr)
        if failures:
            return 1
    try:
        with termination_raises():
            if args.ray is None:
                records = run_recipes(recipes, seeds=args.seeds, mirror=args.mirror, gpus=args.gpus)
            elif args.publish:
                records = [record for recipe in recipes for record in records_seen(recipe, args.seeds)]
            for recipe in recipes if args.publish else []:
                own = [record for record in records if record.run == recipe.run]
                record = export_model(recipe, own, mirror=args.mirror)
                print(f"checkpoints/{record.run}: seed {record.seed}")
                publishing = suggested_command("rskip", "zoo", "publish", record.run, "--seed", str(record.seed))
                print(f"add it to checkpoints.json with: {publishing}")
    except CommandFailed as error:
        print(f"rskip run: error: {error}", file=sys.stderr)
        return 1
    return 0
