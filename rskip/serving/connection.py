"""uvicorn's HTTP protocol with a time limit for the header of a request."""

from __future__ import annotations

import asyncio
from typing import Any

from rskip.machine.extras import extra

with extra("serve", what="a server"):
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedConnection(H11Protocol):
    """Closes connections whose client doesn't complete a header in time. uvicorn itself waits for ever."""

    header_seconds = 20.0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._header_timer = self.loop.call_later(self.header_seconds, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def timed(seconds: float) -> type[TimedConnection]:
    """The protocol with this time limit."""
    return type("Connection", (TimedConnection,), {"header_seconds": seconds})
