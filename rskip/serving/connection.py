"""uvicorn's HTTP protocol with time limits for the header of a request and for its answer."""

from __future__ import annotations

import asyncio
from typing import Any

from rskip.extras import extra
from rskip.serving.settings import ServerSettings

with extra("serve", what="a server"):
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

OPEN = "rskip.connections"


class TimedConnection(H11Protocol):
    """Closes connections whose client doesn't send a complete header or receive a complete answer in time. uvicorn
    itself waits for ever."""

    header_seconds, answer_seconds = 20.0, 60.0
    _header_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
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
