"""Make the tables of results from the records, in results/README.md, README.md and docs/."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit status 1 where a table differs from the records",
    )


def run(args: argparse.Namespace) -> int:
    """Returns 1 where --check finds a table that is out of date."""
    from rskip.experiments.report import outdated_tables
    from rskip.records.tables import write_documents

    outdated = outdated_tables(Path())
    if args.check:
        if outdated:
            names = ", ".join(map(str, outdated))
            print(
                f"rskip report: out of date with the records in results/: {names}; run `rskip report`",
                file=sys.stderr,
            )
        return 1 if outdated else 0
    print("\n".join(f"{path}: written" for path in write_documents(outdated)) or "every table is up to date")
    return 0
