"""Refuses requests that are too large, too slow, or sent by a foreign web page, before their content is read."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from rskip.extras import extra
from rskip.serving.errors import RequestError, error_response
from rskip.serving.settings import ServerSettings
from rskip.settings.errors import shown

with extra("serve", what="a server"):
    import h11
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

OPEN = "rskip.connections"  # in the state of a request
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OFTEN = 0.1  # seconds between two checks whether a client that sends nothing more has gone
_ALLOWED = "the operator can allow it with"
_ORIGIN = re.compile(r"\*|(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<name>[\w.-]+|\[[\da-f:.]+\])(?P<port>:\d+)?/?")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Guard:
    """ASGI middleware.

    :param hosts: names by which the server may be addressed; empty: any. With a list, a foreign page can't reach the
        server under a name of its own (DNS rebinding).
    :param origins: web pages of other servers that may send requests.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, *, hosts: Collection[str], origins: Collection[str]
    ) -> None:
        self.app, self.settings, self.hosts, self.origins = app, settings, hosts, origins
        self.held = 0  # bytes of all bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        body = _Body(receive, self, Headers(scope=scope))

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                await body.discard()
                if not body.complete:
                    headers["Connection"] = "close"  # nobody reads the rest of the body
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if self.origins:
                    headers["Cross-Origin-Resource-Policy"] = "cross-origin"
            await send(message)

        try:
            self._check(Headers(scope=scope), scope)
        except RequestError as error:
            response = error_response(error)
            response.headers["Connection"] = "close"
            await response(scope, receive, send_safely)
            return
        try:
            await self.app(scope, body.receive, send_safely)
        finally:
            self.held -= body.size

    def _check(self, headers: Headers, scope: Scope) -> None:
        if len(scope.get("state", {}).get(OPEN, ())) > self.settings.max_connections:  # with the request's own
            raise RequestError(503, "the server has too many open connections: try again in 1 s", retry_after=1)
        length, host, origin = (headers.get(name, "") for name in ("content-length", "host", "origin"))
        if length and "transfer-encoding" in headers:
            raise RequestError(400, "the request has Content-Length and Transfer-Encoding: expected one of them")
        if (encoding := headers.get("content-encoding", "identity").lower()) != "identity":
            raise RequestError(415, f"the content encoding is {encoding[:80]}: expected a body that isn't compressed")
        if length.isdecimal() and int(length[:20]) > self.settings.max_body:
            raise _too_large(self.settings)
        if self.hosts and _host_name(host) not in self.hosts:
            raise RequestError(421, f"this server doesn't answer for this host: {_ALLOWED} --allowed-host")
        if origin and not {origin, "*"} & {*self.origins} and origin.partition("://")[2] != host:
            raise RequestError(403, f"this web page may not send requests: {_ALLOWED} --cors ORIGIN")


def allowed_host(given: str) -> str:
    """The name in a value of --allowed-host, as it appears in requests.

    :raises ValueError: the value is not a name or an address.
    """
    name = _host_name(f"[{given}]" if given.count(":") > 1 and not given.startswith("[") else given)
    if not name or {*given} & {*"/@?#* "}:
        raise ValueError(f"--allowed-host is {shown(given)}: expected a name or an address, such as example.org")
    return name


def allowed_origin(given: str) -> str:
    """A value of --cors as browsers send it: without a path and without the scheme's usual port.

    :raises ValueError: the value is not an origin.
    """
    match = _ORIGIN.fullmatch(given.lower())
    if match is None:
        raise ValueError(f"--cors is {shown(given)}: expected a scheme and a name, such as https://example.org, or *")
    usual = (match["scheme"], match["port"]) in (("http", ":80"), ("https", ":443"))
    return "*" if given == "*" else f"{match['scheme']}://{match['name']}{'' if usual else match['port'] or ''}"


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if there is none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class _Body:
    """Receives a body within the limits of size, memory and time."""

    def __init__(self, receive: Receive, guard: Guard, headers: Headers) -> None:
        self._receive, self._guard = receive, guard
        self._end = time.monotonic() + guard.settings.read_timeout
        self.complete = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._asks = "expect" in headers  # its client sends no body before an answer
        self.size = 0

    async def receive(self) -> Message:
        """The next part of the body, and after its end what follows."""
        if self.complete:
            return await self._receive()
        settings = self._guard.settings
        try:
            message = await asyncio.wait_for(self._receive(), max(self._end - time.monotonic(), 0))
        except asyncio.TimeoutError:
            raise RequestError(408, f"no complete request within {settings.read_timeout:g} s") from None
        size = len(message.get("body", b""))
        self.size += size
        self._guard.held += size
        self.complete = not message.get("more_body", False)
        if self.size > settings.max_body:
            raise _too_large(settings)
        if self._guard.held > settings.max_bodies:
            raise RequestError(503, "the server holds too many large requests: try again in 1 s", retry_after=1)
        return message


    async def discard(self) -> None:
        """Receives the rest, within the time and up to twice the limit: a client that still sends misses an answer."""
        most = 2 * self._guard.settings.max_body
        while not self.complete and most > 0 and not self._asks:
            try:
                message = await asyncio.wait_for(self._receive(), max(self._end - time.monotonic(), 0))
            except asyncio.TimeoutError:
                return
            most -= len(message.get("body", b""))
            self.complete = not message.get("more_body", False)


def _too_large(settings: ServerSettings) -> RequestError:
    return RequestError(413, f"the body is too large: expected at most {settings.max_body:,} bytes")


class TimedConnection(H11Protocol):
    """Closes connections whose client doesn't send a complete header or receive a complete answer in time. uvicorn
    itself waits for ever."""

    header_seconds, answer_seconds = 20.0, 60.0
    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _half_closed = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, OPEN: self.connections}  # of every request's scope
        self._header_timer = self.loop.call_later(self.header_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection of a client that has sent its request and still waits for the answer.

        A client that has gone looks the same, until it resets the connection because something was sent to it: here an
        interim response, which clients skip.
        """
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self._half_closed = True
        if not self.cycle.response_started and self.scope["http_version"] == "1.1":
            event = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self.transport.write(self.conn.send(event))
            self._check_gone()
        return True

    def _check_gone(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(_OFTEN, self._check_gone)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed and self.cycle.response_complete:  # no further request was sent before
            self.transport.close()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        self._answer_timer = self.loop.call_later(self.answer_seconds, self._check_received)

    def _check_received(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def timed(settings: ServerSettings) -> type[TimedConnection]:
    """The protocol with the settings' time limits."""
    limits = {"header_seconds": settings.read_timeout, "answer_seconds": settings.write_timeout}
    return type("Connection", (TimedConnection,), limits)
