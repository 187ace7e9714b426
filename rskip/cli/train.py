"""Train a translation model on a data folder, with settings chosen for the size of the corpus and the machine.

    rskip train data --output model
    rskip train data --output model --connection 2rskip+ln --size small --minutes 60
    rskip train data --output model --set train.dropout=0.3 average.last=5
    rskip train more --from model --output adapted

DATA is a folder that `rskip prepare` made. The command trains with fairseq-train, averages the last checkpoints and
scores the test set. The output folder then holds the model (for `rskip translate --model FOLDER`), recipe.yaml (for
`rskip run` with other seeds and settings), the run's folder and the run record. docs/own_text.md explains how
the settings are chosen.

To resume an interrupted run, repeat the command. Exit status: 0 done; 1 if the training failed; 2 for a mistake in
the arguments or the data; 8 if the training diverged (a loss or weight is infinite or NaN).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rskip.cli._options import add_options, check_range, given_options, refuse_flags
from rskip.cli.main import termination_raises
from rskip.files.whole import check_apart, real_path
from rskip.tasks.process import DIVERGED, CommandFailed
from rskip.translation.plan import Choices

_LEAST_MINUTES, _MOST_MINUTES = 1e-3, 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="folder from `rskip prepare`")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder of the model (default: models/NAME, where DATA is NAME)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--from", dest="start", type=Path, metavar="MODEL",
        help="train this model of yours further; DATA is from `rskip prepare --like MODEL`",
    )  # fmt: skip
    add_options(model, Choices, only=("connection", "size"))
    schedule = parser.add_argument_group("schedule", "By default, the number of updates is chosen for the corpus.")
    add_options(schedule, Choices, only=("epochs", "updates"))
    schedule.add_argument(
        "--minutes",
        type=float,
        metavar="X",
        help="training time to aim for; the command first measures the speed, for at most a fifth of this time, and "
        "plans fewer updates if necessary",
    )
    schedule.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change any setting of the recipe, such as train.dropout=0.3; train.X is fairseq-train's --X",
    )  # fmt: skip
    machine = parser.add_argument_group("machine")
    machine.add_argument("--gpus", type=int, metavar="N", help="number of GPUs; 0: the CPU (default: 1 if available)")
    add_options(machine, Choices, only=["precision"])
    parser.add_argument("--dry-run", action="store_true", help="print the recipe and the commands without training")


def run(args: argparse.Namespace) -> int:
    """Trains, or resumes. Exit status 1 if the training failed by itself, 8 if it diverged."""
    # imports sacreBLEU, which --help doesn't need
    from rskip.experiments.quick_start import Request, caution, ending, planned, train_model

    check_range(args, "minutes", _LEAST_MINUTES, _MOST_MINUTES)
    check_range(args, "seed", 0, 2**32 - 1)
    if args.start is not None:
        given = {"--size": args.size, "--connection": args.connection}
        refuse_flags(given, "is given with --from, whose model determines it")
    output = args.output or Path("models", real_path(args.data).name)
    check_apart(output, Path(args.data))
    request = Request(
        data=os.path.normpath(args.data),
        output=output,
        choices=Choices(**given_options(args, Choices)),
        minutes=args.minutes,
        start=args.start,
        seed=args.seed,
        overrides=args.overrides,
        gpus=args.gpus,
    )
    if args.dry_run:
        recipe, commands = planned(request)
        print("\n".join(["", recipe, *commands]))
        return 0
    try:
        with termination_raises():
            record = train_model(request)
    except CommandFailed as error:
        print(f"rskip train: error: {error}", file=sys.stderr)
        return 1
    if record.diverged:
        rate = record.config["train"]["lr"]
        print(f"rskip train: error: the training diverged: try --set train.lr={rate / 2:g}", file=sys.stderr)
        return DIVERGED
    print(ending(request, record))
    if line := caution(request, record):
        print(f"rskip train: warning: {line}", file=sys.stderr)
    return 0
