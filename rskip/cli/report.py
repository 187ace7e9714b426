"""Make the tables of results and the figures: in results/README.md, README.md and docs/."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit status 1 where a table or a figure differs from its data",
    )


def run(args: argparse.Namespace) -> int:
    """Returns 1 where --check finds a table or a figure that is out of date."""
    from rskip.experiments.report import figures, outdated_tables
    from rskip.records.tables import write_documents

    tables, made = outdated_tables(Path()), figures(Path())
    if args.check:
        outdated = [*tables, *(path for figure in made for path in figure.outdated())]
        if outdated:
            names = ", ".join(map(str, outdated))
            print(f"rskip report: out of date with their data: {names}; run `rskip report`", file=sys.stderr)
        return 1 if outdated else 0
    written = [*write_documents(tables), *(path for figure in made for path in figure.write())]
    print("\n".join(f"{path}: written" for path in written) or "every table and figure is up to date")
    return 0
