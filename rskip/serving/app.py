"""Builds the web application of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import rskip
from rskip.extras import extra
from rskip.serving.access_log import AccessLog, Write
from rskip.serving.errors import GONE, RequestError, error_response
from rskip.serving.guard import Guard
from rskip.serving.libretranslate import libretranslate_api
from rskip.serving.metrics import CONTENT_TYPE
from rskip.serving.own_api import own_api
from rskip.serving.service import Service
from rskip.settings.errors import shown

with extra("serve", what="a server"):
    from fastapi import FastAPI, Request
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, Response
    from starlette.types import ASGIApp

_FILES = Path(__file__).parent / "page_files"
_PAGE = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def build_app(
    service: Service,
    *,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    log: Write | None = None,
    log_texts: bool = False,
) -> ASGIApp:
    """The application, which starts and closes the service's threads.

    :param hosts, origins: see `Guard`.
    :param log, log_texts: see `AccessLog`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await run_in_threadpool(service.batcher.close)

    # the pages of FastAPI's documentation load scripts from another server; the description itself is /openapi.json
    app = FastAPI(
        title="rskip", version=rskip.__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
        lifespan=lifespan,
    )  # fmt: skip
    for api in (libretranslate_api, own_api):
        app.include_router(api(service))
    for name, kind in _PAGE.items():
        _add_file(app, name, kind)
    _add_health(app, service)
    _add_errors(app)
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=[*origins], allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", "Authorization"],
        )  # fmt: skip
    guarded = Guard(app, service.settings, hosts=hosts, origins=origins)
    return AccessLog(guarded, service.metrics, write=log, with_texts=log_texts)


def _add_file(app: FastAPI, name: str, kind: str) -> None:
    """Adds a file of the page at `/`, which loads nothing from elsewhere."""
    content = (_FILES / name).read_bytes()

    @app.get("/" if name == "index.html" else f"/{name}", include_in_schema=False)
    async def file() -> Response:
        return Response(content, media_type=kind, headers={"Content-Security-Policy": _POLICY})


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready", tags=["operation"])
    async def ready() -> Response:
        """Whether the server accepts work and its last batches did not all fail."""
        state = service.batcher.state
        return JSONResponse({"status": state}, 200 if state == "ready" else 503)

    @app.get("/metrics", tags=["operation"])
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> Response:
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is no route {shown(request.url.path)}: GET /openapi.json lists all"
        response = error_response(RequestError(error.status_code, message))
        response.headers.update(error.headers or {})  # Allow, with status 405
        return response

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return error_response(RequestError(GONE, "the client has gone"))

    @app.exception_handler(Exception)  # AccessLog logs it
    async def unexpected(request: Request, error: Exception) -> Response:
        return error_response(RequestError(500, "the server failed on this request; its log says why"))
