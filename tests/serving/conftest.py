"""A service with the repository's models, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
import httpx  # noqa: E402
import uvicorn  # noqa: E402

from rskip.serving.app import build_app  # noqa: E402
from rskip.serving.guard import timed  # noqa: E402
from rskip.serving.models import Models, load_models  # noqa: E402
from rskip.serving.server import open_port  # noqa: E402
from rskip.serving.service import Service  # noqa: E402
from rskip.serving.settings import ServerSettings  # noqa: E402

FAST: Any = {"timeout_keep_alive": 1}


@pytest.fixture(scope="session")
def models(root) -> Models:
    folders = [f"{root}/checkpoints/multi30k_en_{target}/2rskip_ln" for target in ("de", "fr")]
    return load_models([f"de={folders[0]}", f"fr={folders[1]}"])


@pytest.fixture
def serving(models: Models) -> Iterator[Callable[..., Any]]:
    """`serving(models=, keys=, app={...}, **settings)`: a service with `send(method, path, ...)`, in this process."""
    with contextlib.ExitStack() as stack:

        def started(models: Any = models, keys: Any = (), app: Any = None, **settings: Any) -> Any:
            service: Any = Service(models, ServerSettings(**settings), keys=keys)
            service.batcher.start()
            stack.callback(service.batcher.close)
            service.app = build_app(service, **(app or {}))

            async def all_of(requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
                transport = httpx.ASGITransport(service.app)
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                    return await asyncio.gather(*(client.request(way, path, **more) for way, path, more in requests))

            service.send_all = lambda requests: asyncio.run(all_of(requests))
            service.send = lambda way, path, **more: service.send_all([(way, path, more)])[0]
            return service

        yield started


@pytest.fixture
def address(serving: Callable[..., Any]) -> Iterator[Callable[..., str]]:
    """`address(...)`: the address of a real server in a thread, with the arguments of `serving`."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def run(**given: Any) -> str:
        service = serving(**given)
        listening = open_port("127.0.0.1", 0)
        http = timed(service.settings)
        config = uvicorn.Config(service.app, http=http, ws="none", lifespan="off", log_config=None, **FAST)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield run
    for server, thread in running:
        server.should_exit = True
        thread.join()
