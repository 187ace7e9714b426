"""Runs a server until it is told to end."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys

from rskip.extras import extra
from rskip.serving.guard import timed
from rskip.serving.settings import ServerSettings
from rskip.settings.errors import SettingError

with extra("serve", what="a server"):
    import uvicorn
    from starlette.types import ASGIApp

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
_MOST_WAITING = 2048  # connections that wait to be accepted
_OTHER_FILES = 200  # open files of a server besides its connections


def open_port(host: str, port: int) -> socket.socket:
    """A socket that listens on the port. Connections wait until a server accepts them.

    :raises ValueError: another program has the port, or the host is not one of this machine.
    """
    if not 0 <= port <= 65535:
        raise SettingError.of_value("port", port, "0 to 65535, where 0 is any free port")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if the protocol is given
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_MOST_WAITING)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"can't listen on port {port} of {host} ({reason}): give another --port or --host") from error
    return listening


def is_private(listening: socket.socket) -> bool:
    """Whether only programs of this machine reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0]).is_loopback


def allow_connections(count: int) -> None:
    """Raises this process' limit of open files for this many connections, and says so on stderr if it stays too low."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed, unlimited = count + _OTHER_FILES, resource.RLIM_INFINITY
    if soft == unlimited or soft >= needed:
        return
    possible = needed if hard == unlimited else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    except (OSError, ValueError):
        possible = soft
    if possible < needed:
        advice = f"expected {needed:,} for {count:,} connections; raise it, or give a smaller --max-connections"
        print(f"the limit of open files is {possible:,}: {advice}", file=sys.stderr, flush=True)


def run_server(app: ASGIApp, listening: socket.socket, settings: ServerSettings, *, names: str = "") -> None:
    """Serves until SIGTERM, SIGHUP or Ctrl-C. Then it accepts no further connections and answers what it has accepted.

    :param names: the models, which a line on stderr announces with the address.
    """
    config = uvicorn.Config(
        app,
        http=timed(settings),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.timeout) + 10,
    )
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        """Handles a signal before uvicorn does, and the signal that it repeats when it has shut down."""
        server.should_exit = True

    # a program that ignores SIGHUP goes on, as with nohup
    before = {number: signal.signal(number, end) for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    host, port = listening.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    print(f"serving {names} at http://{address} (press Ctrl-C to stop)", file=sys.stderr, flush=True)
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
