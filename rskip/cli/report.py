"""Print tables of results.

Without NAME, the command prints one line per run that has a run record. NAME is a recipe, such as flickr8k in recipes/,
or the path of a recipe's file; a grid, such as field/6x6 or my/recipe.yaml/6x6; or a table of a paper, such as
rskip-table-1, with the scores of the paper. With three seeds per variant, the command tests the differences from the
recipe's baseline, if it has one. If a difference is not detected, it prints how many seeds would detect it.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

from rskip.cli._options import refuse_flags
from rskip.experiments.comparisons import SEEDS
from rskip.experiments.recipe import find_recipe
from rskip.experiments.results import overview, read_results
from rskip.records.tables import Format


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="NAME", help="table to print; all: every comparison table")
    parser.add_argument(
        "--format", choices=get_args(Format), default="text", help="format of the named tables (default: text)"
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, metavar="N",
        help="seeds that each variant should have; missing runs are listed (default: 1 2 3)",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", metavar="VARIANT", help="variant to compare the others with (default: the recipe's baseline)"
    )


def run(args: argparse.Namespace) -> None:
    named = [_named(given) for given in args.tables]
    names = [name for name, _ in named]
    files = [file for _, file in named if file is not None]
    for file in files:
        find_recipe(file)  # FileNotFoundError, which suggests another name
    if not names:
        refuse_flags({"--baseline": args.baseline, "--format": args.format != "text"}, "is given without NAME")
    baselines = {} if args.baseline is None else dict.fromkeys(names, args.baseline)
    results = read_results(Path(), files=files, baselines=baselines)
    if grids := [name for name in names if name in results.grids]:
        why = f"doesn't work for the grid {grids[0]}, which always compares with its first line"
        refuse_flags({"--baseline": args.baseline}, why)
    if not names:
        print(overview(results.records), end="")
        return
    typed = {name: shlex.quote(given) for name, given in zip(names, args.tables, strict=True)}
    found = [
        replace(results.table(name, seeds=args.seeds), name=typed.get(name, name))
        for name in (results.names if names == ["all"] else names)
    ]
    if len(found) > 1:
        refuse_flags({"--format csv": args.format == "csv"}, f"prints one table, not {len(found)}")
    print("\n".join(table.render(args.format) for table in found), end="")
    for name, given in typed.items():
        grids = [given + grid.removeprefix(name) for grid in results.grids if grid.startswith(f"{name}/")]
        if grids:
            print(f"rskip report: {given} is a grid; as tables with columns: {', '.join(grids)}", file=sys.stderr)


def _named(given: str) -> tuple[str, Path | None]:
    """The name of a table, and its recipe's file if that is given: `my/recipe.yaml/6x6` is the table `recipe/6x6`."""
    match = re.fullmatch(r"(.*\.ya?ml)(/.+)?", given)
    return (given, None) if match is None else (f"{Path(match[1]).stem}{match[2] or ''}", Path(match[1]))
