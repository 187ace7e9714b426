"""Writes one JSON line per request, and counts it."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from rskip.extras import extra
from rskip.serving.metrics import Metrics

with extra("serve", what="a server"):
    from fastapi import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("rskip.serving")
Write = Callable[[str], object]
_FACTS, _TEXTS = "rskip.facts", "rskip.texts"


def note(request: Request, texts: list[str] | None = None, **facts: Any) -> None:
    """Adds facts on a request to its line in the log.

    :param texts: its texts, which are written only if the server was told to.
    """
    request.scope.setdefault(_FACTS, {}).update(facts)
    if texts is not None:
        request.scope[_TEXTS] = texts


class AccessLog:
    """ASGI middleware. It also answers HEAD as GET without a body, and paths with "/" at their end as without.

    :param write: called with each line; None: no log.
    :param with_texts: also write the texts of requests.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, *, write: Write | None, with_texts: bool = False) -> None:
        self.app, self.metrics, self.write, self.with_texts = app, metrics, write, with_texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), 500
        method = scope["method"]
        inner = {**scope, "method": "GET" if method == "HEAD" else method, "path": _path(scope)}

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        inner[_FACTS] = {}
        try:
            await self.app(inner, receive, send_noted)
        except Exception:  # the client has its answer
            _LOG.exception("a request failed")
        finally:
            self._finish(inner, method, status, time.monotonic() - start)

    def _finish(self, scope: Scope, method: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        method = method if method in ("GET", "POST", "HEAD", "OPTIONS") else "other"
        self.metrics.answered(route, method, status, seconds)
        if self.write is None:
            return
        client = scope.get("client")
        line = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "client": client[0] if client else None,
            "method": method,
            "route": route,
            "status": status,
            "seconds": round(seconds, 4),
            **scope[_FACTS],
            **({"texts": scope[_TEXTS]} if self.with_texts and _TEXTS in scope else {}),
        }
        self.write(json.dumps(line))


def _path(scope: Scope) -> str:
    """The path without "/" at its end, but with the prefix of a proxy."""
    root, path = scope.get("root_path", ""), scope["path"]
    return root + (path[len(root) :].rstrip("/") or "/")


def to_stderr(line: str) -> None:
    """Writes a line of the log to standard error."""
    print(line, file=sys.stderr, flush=True)
