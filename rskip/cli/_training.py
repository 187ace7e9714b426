"""Declares the arguments that `rskip vision train` and `rskip lm train` share: folder, seed, settings and probe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rskip.cli._options import check_range, refuse_flags
from rskip.machine.ranks import Ranks
from rskip.settings.text import parse_overrides

if TYPE_CHECKING:
    from rskip.analysis.trace import TraceObserver


def add_training_arguments(parser: argparse.ArgumentParser, *, change: str, without_probe: str = "") -> None:
    """Adds these arguments.

    :param change: an example of --set.
    :param without_probe: the default of --probe-every; empty: no probe.
    """
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FOLDER",
        help="folder for the training run; resumes the run that is in it",
    )  # fmt: skip
    parser.add_argument(
        "--tracker", choices=("tensorboard", "wandb"),
        help="also write the curve for TensorBoard or Weights & Biases, in --output (wandb is offline unless "
        "WANDB_MODE=online)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="changes",
        help=f"change any setting by its name, such as {change}",
    )  # fmt: skip
    default = f" (default: {without_probe})" if without_probe else ""
    parser.add_argument(
        "--probe-every", type=int, metavar="N",
        help="probe the model at the first and every N-th iteration: for every residual block, RMS of x, F(x) and y, "
        f"norm of the loss gradient, and gates{default}",
    )  # fmt: skip
    parser.add_argument(
        "--probe-file", type=Path, metavar="FILE", help="file of the probe's values (default: probe.jsonl in --output)"
    )


def changes_of_set(args: argparse.Namespace) -> dict[str, Any]:
    """The values of --set by the setting's name, which may begin with `train.` as in recipes."""
    return {key.removeprefix("train."): value for key, value in parse_overrides(args.changes, source="--set").items()}


def probe_of(args: argparse.Namespace, connection: str, ranks: Ranks) -> TraceObserver | None:
    """The probe that --probe-every asks for.

    :raises ValueError: the flags are wrong, or a model with this connection can't be probed.
    """
    from rskip.analysis.trace import TraceObserver  # loads PyTorch, which --help doesn't need
    from rskip.connections import find_family, parse_connection

    if args.probe_every is None:
        refuse_flags({"--probe-file": args.probe_file}, "needs --probe-every N")
        return None
    check_range(args, "probe_every", 1)
    if find_family(parse_connection(connection).family).passes != "x":
        problem = f"{connection} passes on several tensors"
        raise ValueError(f"--probe-every needs a connection that passes on one x, but {problem}: leave out the flag")
    path = args.probe_file or args.output / "probe.jsonl"
    return TraceObserver(path, every=args.probe_every, writes=ranks.first)
