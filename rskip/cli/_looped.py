"""Runs the training of `rskip vision train` and `rskip lm train`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from rskip.analysis.trace import TraceObserver
from rskip.cli._options import check_range, refuse_flags
from rskip.connections import find_family, parse_connection
from rskip.files.folder_lock import FolderLock
from rskip.machine.ranks import Ranks
from rskip.machine.torch_errors import memory_as_mistake
from rskip.machine.workers import end_with_parent
from rskip.tasks.process import DIVERGED
from rskip.tasks.training import Diverged, Interrupted, TrainingRun, process_group


@memory_as_mistake(": give a smaller --batch-size, or another --device; the command resumes from its checkpoint")
def run_training(
    args: argparse.Namespace,
    command: str,
    begin: Callable[[Ranks], tuple[Any, Callable[..., TrainingRun[Any]]]],
    done: Callable[[TrainingRun[Any]], str],
) -> int:
    """Trains or resumes a training, in one process or as one of torchrun's, and returns the exit status.

    :param command: the command's name, such as "vision train".
    :param begin: returns the settings, and the function that trains with them.
    :param done: describes the finished training.
    """
    ranks = Ranks.from_environment()
    if FolderLock.inherited() or ranks.count > 1:
        end_with_parent()  # which may be torchrun: a rank would wait for a killed one for half an hour
    with process_group(ranks, args.device):
        settings, train = begin(ranks)
        with ranks.together():
            observer = _probe(args, settings.connection, ranks)
        options = {"folder": args.output, "seed": args.seed, "device": args.device, "tracker": args.tracker}
        try:
            result = train(settings, **options, observer=observer)
        except Interrupted as error:
            print(f"rskip {command}: {error}", file=sys.stderr)
            return error.status
        except Diverged as error:
            if ranks.first:
                print(f"rskip {command}: error: {error}", file=sys.stderr)
            return DIVERGED
    if ranks.first:
        print(done(result))
    return 0


def _probe(args: argparse.Namespace, connection: str, ranks: Ranks) -> TraceObserver | None:
    """The probe that --probe-every asks for.

    :raises ValueError: the flags are wrong, or a model with this connection can't be probed.
    """
    if args.probe_every is None:
        refuse_flags({"--probe-file": args.probe_file}, "needs --probe-every N")
        return None
    check_range(args, "probe_every", 1)
    if find_family(parse_connection(connection).family).passes != "x":
        problem = f"{connection} passes on several tensors"
        raise ValueError(f"--probe-every needs a connection that passes on one x, but {problem}: leave out the flag")
    path = args.probe_file or args.output / "probe.jsonl"
    return TraceObserver(path, every=args.probe_every, writes=ranks.first)
