"""Serve models over HTTP, with batches of independent requests and a page in the browser.

The server speaks LibreTranslate's API (/translate, /languages, /detect), its own (/v1/translate, and /v1/caption and
/v1/classify for images) and OpenAI's completions (/v1/completions). It answers only programs on this machine, unless
--host says otherwise. After SIGTERM or Ctrl-C it answers the requests that it has accepted, and ends.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from rskip.serving.settings import ServerSettings
    from rskip.serving.supervisor import Hire

EXAMPLES = """examples:
  rskip serve --model checkpoints/multi30k_en_de/2rskip_ln
  rskip serve --model en-de=models/de --model en-fr=models/fr --port 8080 --precision int8
  curl -d q="A dog runs." -d source=en -d target=de http://127.0.0.1:8000/translate"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    from rskip.cli._options import add_options
    from rskip.serving.settings import ServerSettings

    parser.epilog = EXAMPLES
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        metavar="[NAME=]MODEL",
        help="model folder, a name from `rskip zoo list`, or hf:OWNER/NAME; repeat it for several models; NAME is what "
        "requests call it (default: the last part of the path)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port (default: %(default)s)")
    parser.add_argument("--precision", help="number format of the models, such as int8 (default: float32)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--source-lang", metavar="LANG", help="source language of requests to "
                        "multilingual models that name none")  # fmt: skip
    parser.add_argument("--target-lang", metavar="LANG", help="target language, likewise")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="CPU threads of each worker (default: the workers share the cores)"
    )
    add_options(parser.add_argument_group("batches and limits"), ServerSettings)

    access = parser.add_argument_group("access")
    access.add_argument(
        "--api-keys", type=Path, metavar="FILE", help="file with one API key per line (default: requests need no key)"
    )
    access.add_argument(
        "--cors", action="append", default=[], metavar="ORIGIN",
        help="web page that may send requests, such as https://example.org; repeat it for several (default: none)",
    )  # fmt: skip
    access.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME",
        help="name by which clients may address the server; repeat it for several (default: any, but only names of "
        "this machine if the server listens on 127.0.0.1)",
    )  # fmt: skip
    access.add_argument("--quiet", action="store_true", help="no log of requests on stderr")
    access.add_argument("--log-texts", action="store_true", help="write the texts of requests to the log")


def run(args: argparse.Namespace) -> None:
    """Loads the models and serves them."""
    from rskip.cli._options import refuse_flags, with_flags
    from rskip.serving.guard import LOOPBACK, allowed_host, allowed_origin
    from rskip.serving.server import allow_connections, is_private, open_port, run_server
    from rskip.serving.settings import ServerSettings

    if args.quiet:
        refuse_flags({"--log-texts": args.log_texts}, "can't be combined with --quiet, which writes no log")
    settings, keys = with_flags(ServerSettings(), args), read_keys(args.api_keys)
    workers = _workers(args, settings)
    if args.threads is not None and not 1 <= args.threads <= 512:
        raise ValueError(f"--threads is {args.threads}: expected 1 to 512")
    hosts, origins = [*map(allowed_host, args.allowed_host)], [*map(allowed_origin, args.cors)]
    listening = open_port(args.host, args.port)
    with listening:
        from rskip.cpu.threads import threads
        from rskip.serving.access_log import to_stderr
        from rskip.serving.app import build_app
        from rskip.serving.models import load_models
        from rskip.serving.service import Service
        from rskip.serving.supervisor import supervise
        from rskip.serving.workers import work

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
    from rskip.cpu.threads import set_threads

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
