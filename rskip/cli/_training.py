"""Declares the arguments that `rskip vision train` and `rskip lm train` share: folder, seed, settings and probe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rskip.settings.text import parse_overrides


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
