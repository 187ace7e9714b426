"""Analyse models: signals, gradients, ratios of x to F(x), gates, streams and depth of every residual block."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rskip.analysis.figures import View, chart, draw
from rskip.analysis.measurement import learning_curves
from rskip.analysis.registry import ANALYSES, DRAWN
from rskip.cli._options import add_options, given_options
from rskip.experiments.recipe import results_folder
from rskip.machine.terminal import columns
from rskip.records import read_record, read_run_records
from rskip.settings.errors import did_you_mean
from rskip.tasks.subject import Conditions

if TYPE_CHECKING:
    from rskip.analysis.measurement import Measurement
    from rskip.records import Record

COMMANDS = ("curves",)

EXAMPLES = """examples:
  rskip analyse gradients 1xskip 2rskip+ln sas:alpha_bias=3,beta_bias=-3 --depth 20 110 --output figures
  rskip analyse ratios preact_resnet20_2rskip_ln.cifar10 --examples 1000
  rskip analyse gates transformer_tiny_sas.multi30k.en-de --data data-bin/multi30k-en-de --split valid
  rskip analyse streams hyper mhc --task translation --data data-bin/multi30k-en-de
  rskip analyse curves RUN ...  (learning curves of records: rskip analyse curves --help)

MODEL is a connection (analysed in a newly initialised model), the folder or checkpoint of a training run, a Hugging
Face folder of a model that carries streams or that rskip.adapt changed, a folder of published weights, or a name from
`rskip zoo list`. docs/analysis.md defines the measurements."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("analysis", choices=ANALYSES, metavar="ANALYSIS", help=", ".join(ANALYSES))
    parser.add_argument("models", nargs="+", metavar="MODEL", help="connection, path, or name of a published model")
    parser.add_argument(
        "--depth", nargs="+", type=int, default=[], metavar="N",
        help="depths of newly initialised models: layers of a PreAct-ResNet, or of each stack of a Transformer",
    )  # fmt: skip
    parser.add_argument("--task", metavar="TASK", help="task of the newly initialised models (default: vision)")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER",
        help="folder for ANALYSIS.json and .csv, and for .svg if matplotlib is installed",
    )  # fmt: skip
    add_options(parser, Conditions)


def run(args: argparse.Namespace) -> None:
    """Measures, prints the table, and writes the files if --output is given."""
    # load PyTorch, which --help doesn't need
    from rskip.analysis import analyses
    from rskip.analysis.tables import text_form

    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)  # before the work
    measurement: Measurement = getattr(analyses, args.analysis)(
        args.models, depths=args.depth, task=args.task, progress=True, **given_options(args, Conditions)
    )
    print(text_form(measurement))
    if args.output is not None:
        for path in write(measurement, args.output):
            print(f"{path}: written")


def write(measurement: Measurement, folder: Path, view: View | None = None) -> list[Path]:
    """Writes the files of the measurement, and its charts if matplotlib is installed.

    :param view: the part of the measurement that the first chart shows.
    """
    name = measurement.analysis
    paths = [folder / f"{name}.{kind}" for kind in ("json", "csv")]
    for path in paths:
        measurement.write(path)
    views = {name: view or View(), **{f"{name}_{kind}": View(kind=kind) for kind in DRAWN[name].charts[1:]}}
    for stem, view in views.items() if find_spec("matplotlib") else ():
        paths.append(folder / f"{stem}.svg")
        draw(measurement, paths[-1], view)
    return paths


def add_curves_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run, such as flickr8k/sas, or the path of a record or its folder"
    )
    parser.add_argument(
        "--quantities", nargs="+", default=[], metavar="NAME",
        help="columns of the learning curve in the run record (default: losses and errors)",
    )  # fmt: skip
    parser.add_argument(
        "--over", choices=("epoch", "update"), help="horizontal axis (default: epoch, if the runs have epochs)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER",
        help="folder for curves.json and .csv, and for .svg if matplotlib is installed",
    )  # fmt: skip


def run_curves(args: argparse.Namespace) -> None:
    """Plot learning curves of runs in one chart.

        rskip analyse curves cifar10_fast/preact20_1xskip cifar10_fast/preact20_2rskip_ln --output curves
        rskip analyse curves results/flickr8k/sas/1.json --over update --quantities valid_loss valid_cider

    The command prints the values of the last epoch. With several seeds, the chart has a thin line per seed and their
    mean.
    """
    measurement = learning_curves(record for name in args.runs for record in _records(name))
    has_epochs = any(row["epoch"] is not None for row in measurement.rows)
    over: Literal["epoch", "update"] = args.over or ("epoch" if has_epochs else "update")
    view = View(quantities=tuple(args.quantities), over=over)
    shown = chart(measurement, view)
    names = list(dict.fromkeys(row["quantity"] for row in shown.rows))
    table = [["run", "seed", over, *names]]
    last: dict[tuple[str, str], dict[str, str]] = {}
    for row in shown.rows:
        figures = last.setdefault((row["model"], str(row["seed"])), {})
        figures |= {over: str(row[shown.x]), row["quantity"]: f"{row['value']:.4g}"}
    for (model, seed), figures in last.items():
        table.append([model, seed, *(figures.get(name, "-") for name in (over, *names))])
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
