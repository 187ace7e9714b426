"""The probe of `rskip vision train` and `rskip lm train`."""

from __future__ import annotations

import argparse

from rskip.analysis.observer import TraceObserver
from rskip.cli._options import refuse_flags
from rskip.connections import find_family, parse_connection
from rskip.machine.ranks import Ranks


def probe_of(args: argparse.Namespace, connection: str, ranks: Ranks) -> TraceObserver | None:
    """The probe that --probe-every asks for.

    :raises ValueError: the flags are wrong, or a model with this connection can't be probed.
    """
    if args.probe_every is None:
        refuse_flags({"--probe-file": args.probe_file}, "needs --probe-every N")
        return None
    if args.probe_every < 1:
        raise ValueError(f"--probe-every is {args.probe_every}: expected 1 or more")
    if find_family(parse_connection(connection).family).passes != "x":
        problem = f"{connection} passes on several tensors"
        raise ValueError(f"--probe-every needs a connection that passes on one x, but {problem}: leave out the flag")
    path = args.probe_file or args.output / "probe.jsonl"
    return TraceObserver(path, every=args.probe_every, writes=ranks.first)
