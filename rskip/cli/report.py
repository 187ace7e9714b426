"""Make the tables of results and the figures, in results/, README.md and docs/; or print tables.

Without NAME it writes what is out of date: results/README.md, docs/tables.md, the tables in README.md and docs/, the
figures, and what checkpoints.json and the models' cards say of runs that have new records. With it, it prints these
tables: a paper's, such as rskip-table-1 or sas-table-3, a recipe's, such as flickr8k, a grid's, such as field/6x6, or
what connections cost, connection_cost_translation. Those of the first two kinds set ours beside the paper's; where
seeds allow, differences to the baseline are tested.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.experiments.tables import SEEDS
    from rskip.records.tables import Format

    parser.add_argument("tables", nargs="*", metavar="NAME", help="print this table; `all`: every one")
    parser.add_argument("--format", choices=get_args(Format), default="text", help="of printed tables (default: text)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=SEEDS, metavar="N", help="that every row is to have (default: 1 2 3)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit status 1 where a table, a figure or a model's entry differs from its data",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write tables, figures and claims as one page")


def run(args: argparse.Namespace) -> int:
    """Returns 1 where --check finds what is out of date."""
    if sum(map(bool, (args.tables, args.check, args.html))) > 1:
        raise ValueError("NAME, --check and --html exclude each other: give one of them")
    if args.tables:
        return _print_tables(args)
    if args.html:
        from rskip.experiments.page import write_page

        write_page(Path(), args.html)
        print(f"{args.html}: written")
        return 0
    from rskip.experiments.report import figures, outdated_tables
    from rskip.experiments.results import read_results
    from rskip.records.tables import write_documents
    from rskip.zoo import publishing
    from rskip.zoo.registry import CARD, FILE_NAME

    results = read_results(Path())
    tables, made = outdated_tables(Path(), results), figures(Path(), results)
    models = publishing.outdated_models(results.records)
    if args.check:
        of_models = [f"{entry.name} in {FILE_NAME}" for entry in models]
        outdated = [*tables, *(path for figure in made for path in figure.outdated()), *of_models]
        if outdated:
            names = ", ".join(map(str, outdated))
            print(f"rskip report: out of date with their data: {names}; run `rskip report`", file=sys.stderr)
        return 1 if outdated else 0
    written = [*write_documents(tables), *(path for figure in made for path in figure.write())]
    for entry in models:
        publishing.register(entry)
        written += [Path(FILE_NAME), Path(str(entry.folder), CARD)]
    written += write_documents(publishing.outdated_tables(Path()))
    print("\n".join(f"{path}: written" for path in dict.fromkeys(written)) or "every table and figure is up to date")
    return 0


def _print_tables(args: argparse.Namespace) -> int:
    from rskip.experiments.results import read_results
    from rskip.experiments.tables import Comparison, begun

    results = read_results(Path())
    names = results.names if args.tables == ["all"] else args.tables
    found = [results.table(name, seeds=args.seeds) for name in names]
    print("\n".join(table.render(args.format) for table in found), end="")
    compared = [table for table in found if isinstance(table, Comparison)]
    for folder in dict.fromkeys(folder for table in compared for folder in begun(table)):
        print(f"rskip report: {folder} has begun and has no record yet: its command resumes it", file=sys.stderr)
    return 0
