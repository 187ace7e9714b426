"""Serves models over HTTP, for `rskip serve`."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from rskip.cli._options import check_range, refuse_flags, with_flags
from rskip.cpu.threads import set_threads, threads
from rskip.serving.access_log import to_stderr
from rskip.serving.app import build_app
from rskip.serving.guard import LOOPBACK, allowed_host, allowed_origin
from rskip.serving.models import load_models
from rskip.serving.server import allow_connections, is_private, open_port, run_server
from rskip.serving.service import Service
from rskip.serving.settings import ServerSettings
from rskip.serving.supervisor import Hire, supervise
from rskip.serving.workers import work


def run(args: argparse.Namespace) -> None:
    """Loads the models and serves them."""
    if args.quiet:
        refuse_flags({"--log-texts": args.log_texts}, "can't be combined with --quiet, which writes no log")
    settings, keys = with_flags(ServerSettings(), args), read_keys(args.api_keys)
    workers = _workers(args, settings)
    check_range(args, "threads", 1, 512)
    hosts, origins = [*map(allowed_host, args.allowed_host)], [*map(allowed_origin, args.cors)]
    listening = open_port(args.host, args.port)
    with listening:
        count = max(1, threads() // max(1, workers)) if args.threads is None else args.threads
        if workers:  # a process that has run threads of OpenMP must not fork
            _limit_threads(1)
        elif args.threads is not None:
            _limit_threads(count)
        languages = args.source_lang, args.target_lang
        models = load_models(args.model, precision=args.precision, device=args.device, languages=languages)
        hosts += LOOPBACK if hosts or is_private(listening) else ()

        def serve(hire: Hire | None) -> None:
            app = build_app(
                Service(models, settings, keys=keys, hire=hire),
                hosts=hosts,
                origins=origins,
                log=None if args.quiet else to_stderr,
                log_texts=args.log_texts,
            )
            run_server(app, listening, settings)

        def compute(server: socket.socket) -> None:
            listening.close()
            _limit_threads(count)
            work(server, models)

        allow_connections(settings.max_connections)
        host = f"[{args.host}]" if ":" in args.host else args.host
        names = ", ".join(each.name for each in models)
        print(f"serving {names} at http://{host}:{listening.getsockname()[1]} (press Ctrl-C to stop)", file=sys.stderr)
        if workers:
            supervise(serve, compute, at_end=listening.close)
        else:
            serve(None)


def _workers(args: argparse.Namespace, settings: ServerSettings) -> int:
    """The number of worker processes.

    :raises ValueError: workers were asked for where there are none.
    """
    if sys.platform == "linux" and args.device in (None, "cpu"):
        return settings.workers
    if args.workers:
        where = f"--device {args.device or 'cpu'} on {sys.platform}"
        raise ValueError(f"--workers is {args.workers}: expected 0 with {where}")
    return 0


def _limit_threads(count: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(count)  # for libraries that are loaded later
    set_threads(count)


def read_keys(path: Path | None) -> list[str]:
    """The API keys in a file.

    :raises ValueError: the file has no key.
    """
    if path is None:
        return []
    keys = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if not keys:
        raise ValueError(f"{path} holds no API key: expected one per line")
    return keys
