"""Train one language model on a prepared text.

The defaults are those of nanoGPT's quick start for a cheap computer. To resume from the last checkpoint in --output,
repeat the command. SIGTERM and Ctrl-C save and stop. Exit status: 0 if the training is complete, 143 or 130 if a signal
stopped it, 2 for a mistake in the arguments, 8 if the training diverged (a loss or weight is infinite or NaN).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rskip.analysis.observer import TraceObserver
    from rskip.language_modeling.settings import TrainingSettings
    from rskip.machine.ranks import Ranks

EXAMPLES = """examples:
  rskip prepare shakespeare-char
  rskip lm train data-bin/shakespeare-char --connection 2rskip+ln --output runs/shakespeare
  rskip generate --model runs/shakespeare --prompt ROMEO:

in several processes, which share each batch:
  torchrun --standalone --nproc-per-node 2 -m rskip lm train data-bin/shakespeare-char --output runs/two"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rskip.cli._options import add_options
    from rskip.language_modeling.settings import TrainingSettings

    parser.epilog = EXAMPLES
    parser.add_argument("data", metavar="DATA", help="folder from `rskip prepare`")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="DIR",
        help="folder of the training; a training in it is resumed",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    parser.add_argument(
        "--set", nargs="+", action="append", default=[], metavar="KEY=VALUE", dest="changes",
        help="change any setting by its name, such as clip_norm=null",
    )  # fmt: skip
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available, otherwise cpu)")
    parser.add_argument(
        "--probe-every", type=int, metavar="N",
        help="probe the model at the first and every N-th iteration: for every residual block, RMS of x, F(x) and y, "
        "norm of the loss gradient, and gates",
    )  # fmt: skip
    parser.add_argument(
        "--probe-file", type=Path, metavar="FILE", help="file of the probe's values (default: probe.jsonl in --output)"
    )
    add_options(parser.add_argument_group("model and training"), TrainingSettings)


def run(args: argparse.Namespace) -> int:
    """Trains, or resumes a training."""
    from rskip.files.folder_lock import FolderLock
    from rskip.language_modeling.data import load_data
    from rskip.language_modeling.training import train
    from rskip.machine.ranks import Ranks
    from rskip.machine.workers import end_with_parent
    from rskip.tasks.loop import Diverged, Interrupted, process_group
    from rskip.tasks.process import DIVERGED

    if FolderLock.inherited():
        end_with_parent()  # that may be torchrun
    ranks = Ranks.from_environment()
    with process_group(ranks, args.device):
        with ranks.together():
            settings = training_settings(args)
            data = load_data(args.data)
            observer = _observer(args, ranks)
        try:
            result = train(
                settings, data=data, folder=args.output, seed=args.seed, device=args.device, observer=observer
            )
        except Interrupted as error:
            print(f"rskip lm train: {error}", file=sys.stderr)
            return error.status
        except Diverged as error:
            print(f"rskip lm train: error: {error}", file=sys.stderr)
            return DIVERGED
    if ranks.first:
        last, unit = result.points[-1], data.tokens.unit
        print(
            f"{result.model_file}: {result.name}: validation loss {last.valid_loss:.4f} nats per {unit} after "
            f"{result.iteration:,} iterations ({result.seconds / 60:,.1f} min)\n"
            f"generate text: rskip generate --model {args.output}"
        )
    return 0


def training_settings(args: argparse.Namespace) -> TrainingSettings:
    """The settings of --set and of the flags, which take precedence."""
    from rskip.cli._options import given_options, said_of_flag
    from rskip.language_modeling.settings import TrainingSettings
    from rskip.settings.check import convert
    from rskip.settings.errors import SettingError
    from rskip.settings.text import parse_overrides

    given = given_options(args, TrainingSettings)
    texts = [text for group in args.changes for text in group]
    changes: dict[str, Any] = {
        key.removeprefix("train."): value for key, value in parse_overrides(texts, source="--set").items()
    }
    try:
        return convert({**changes, **given}, TrainingSettings)
    except SettingError as error:
        raise (said_of_flag(error, TrainingSettings) if error.name in given else error) from None


def _observer(args: argparse.Namespace, ranks: Ranks) -> TraceObserver | None:
    """The probe that --probe-every asks for."""
    from rskip.analysis.observer import TraceObserver

    if args.probe_every is None:
        if args.probe_file is not None:
            raise ValueError(f"--probe-file is {args.probe_file}: give --probe-every N too")
        return None
    if args.probe_every < 1:
        raise ValueError(f"--probe-every is {args.probe_every}: expected 1 or more")
    path = args.probe_file or args.output / "probe.jsonl"
    return TraceObserver(path, every=args.probe_every, writes=ranks.first)
