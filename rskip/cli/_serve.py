"""Serves models over HTTP, for `rskip serve`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rskip.cli._options import refuse_flags, with_flags
from rskip.cpu.threads import set_threads
from rskip.serving.access_log import to_stderr
from rskip.serving.app import build_app
from rskip.serving.guard import LOOPBACK, allowed_host, allowed_origin
from rskip.serving.models import load_models
from rskip.serving.server import allow_connections, is_private, open_port, run_server
from rskip.serving.service import Service
from rskip.serving.settings import ServerSettings
from rskip.translation.options import CpuSettings


def run(args: argparse.Namespace) -> None:
    """Loads the models and serves them."""
    if args.quiet:
        refuse_flags({"--log-texts": args.log_texts}, "can't be combined with --quiet, which writes no log")
    settings, keys = with_flags(ServerSettings(), args), read_keys(args.api_keys)
    threads = with_flags(CpuSettings(), args).threads
    hosts, origins = [*map(allowed_host, args.allowed_host)], [*map(allowed_origin, args.cors)]
    with open_port(args.host, args.port) as listening:
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded later
            set_threads(threads)
        languages = args.source_lang, args.target_lang
        models = load_models(args.model, precision=args.precision, device=args.device, languages=languages)
        hosts += (*LOOPBACK, args.host, listening.getsockname()[0]) if hosts or is_private(listening) else ()
        log = None if args.quiet else to_stderr
        service = Service(models, settings, keys=keys)
        app = build_app(service, hosts=hosts, origins=origins, log=log, log_texts=args.log_texts)
        allow_connections(settings.max_connections)
        run_server(app, listening, settings, names=", ".join(each.name for each in models))


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
