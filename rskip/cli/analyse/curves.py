"""Plot learning curves of runs in one chart.

    rskip analyse curves cifar10_fast/preact20_1xskip cifar10_fast/preact20_2rskip_ln --output curves
    rskip analyse curves results/flickr8k/sas/1.json --over update --quantities valid_loss valid_cider

The command prints the values of the last epoch. With several seeds, the chart has a thin line per seed and their mean.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rskip.analysis.charts import View, chart
from rskip.analysis.measurement import learning_curves
from rskip.cli.analyse import write
from rskip.experiments.recipe import results_folder
from rskip.machine.terminal import columns
from rskip.records import read_record, read_run_records
from rskip.settings.errors import did_you_mean

if TYPE_CHECKING:
    from rskip.records import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run, such as flickr8k/sas, or the path of a record or its folder"
    )
    parser.add_argument(
        "--quantities", nargs="+", default=[], metavar="NAME",
        help="columns of the learning curve in the run record (default: losses and errors)",
    )  # fmt: skip
    parser.add_argument("--over", choices=("epoch", "update"), default="epoch", help="horizontal axis (default: epoch)")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER",
        help="folder for curves.json and .csv, and for .svg if matplotlib is installed",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Prints the curves' last values, and writes the files if --output is given."""
    measurement = learning_curves(record for name in args.runs for record in _records(name))
    view = View(quantities=tuple(args.quantities), over=args.over)
    shown = chart(measurement, view)
    names = list(dict.fromkeys(row["quantity"] for row in shown.rows))
    table = [["run", "seed", args.over, *names]]
    last: dict[tuple[str, str], dict[str, str]] = {}
    for row in shown.rows:
        figures = last.setdefault((row["model"], str(row["seed"])), {})
        figures |= {args.over: str(row[shown.x]), row["quantity"]: f"{row['value']:.4g}"}
    for (model, seed), figures in last.items():
        table.append([model, seed, *(figures.get(name, "-") for name in (args.over, *names))])
    print(columns(table, left=(0,)))
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
        for path in write(measurement, args.output, view):
            print(f"{path}: written")


def _records(name: str) -> list[Record]:
    """:raises FileNotFoundError: `name` is neither a run record nor a run that has one."""
    if Path(name).suffix == ".json":
        return [read_record(Path(name))]
    results = results_folder(name)
    records = read_run_records(name, results) or read_run_records(Path(name).name, Path(name).parent)
    if not records:
        near = did_you_mean(name, {path.parent.relative_to(results).as_posix() for path in results.rglob("*.json")})
        raise FileNotFoundError(f"no run record in {results / name}/: expected a finished run{near}")
    return records
