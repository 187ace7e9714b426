"""An HTTP server of a folder that can do all that servers and networks do wrong."""

from __future__ import annotations

import http.server
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Answer:
    """What a server says to one request, whatever it asks for.

    :param length: the Content-Length; None: that of the body, "": none is sent.
    :param hang: seconds to wait after the body before hanging up.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | str | None = None
    hang: float = 0.0


class FileServer(http.server.ThreadingHTTPServer):
    """Serves a folder.

    Each request takes the next of `faults`: None, an HTTP status, ("cut", bytes after which to hang up) or an Answer.
    `requests` keeps each request's path.
    """

    daemon_threads = True
    Answer = Answer

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), FileHandler)
        self.folder = folder
        self.faults: list[None | int | tuple[str, int] | Answer] = []
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class FileHandler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name = self.path.strip("/")
        self.server.requests.append(name)
        fault = self.server.faults.pop(0) if self.server.faults else None
        path = self.server.folder / urllib.parse.unquote(name)
        if isinstance(fault, int) or (fault is None and not path.is_file()):
            self.send_error(fault or 404)
            return
        if isinstance(fault, Answer):
            answer = fault
        else:
            content = path.read_bytes()
            answer = Answer(content[: fault[1] if fault else None], length=len(content))
        self.send_response(answer.status)
        length = len(answer.body) if answer.length is None else answer.length
        for header, value in {"Content-Length": str(length), **answer.headers}.items():
            if value:
                self.send_header(header, value)
        self.end_headers()
        try:
            self.wfile.write(answer.body)
            self.wfile.flush()
        except OSError:  # nobody reads any more
            pass
        time.sleep(answer.hang)

    def log_message(self, *args: object) -> None:
        pass
