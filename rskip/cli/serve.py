"""Serve translation models over HTTP, with batches of independent requests and a page in the browser.

The server speaks LibreTranslate's API (/translate, /languages, /detect) and its own (/v1/translate). It answers only
programs on this machine, unless --host says otherwise. After SIGTERM or Ctrl-C it answers the requests that it has
accepted, and ends.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rskip.cli._options import add_options
from rskip.serving.settings import ServerSettings
from rskip.translation.options import CpuSettings

EXAMPLES = """examples:
  rskip serve --model checkpoints/multi30k_en_de/2rskip_ln
  rskip serve --model en-de=models/de --model en-fr=models/fr --port 8080 --precision int8
  curl -d q="A dog runs." -d source=en -d target=de http://127.0.0.1:8000/translate"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_options(parser, CpuSettings, only=["threads"])
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
