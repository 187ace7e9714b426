"""Builds the web application of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import rskip
from rskip.machine.extras import extra
from rskip.serving.access_log import AccessLog, Write
from rskip.serving.completions import completions_api
from rskip.serving.errors import RequestError
from rskip.serving.guard import Guard
from rskip.serving.images import images_api
from rskip.serving.libretranslate import libretranslate_api
from rskip.serving.metrics import CONTENT_TYPE
from rskip.serving.own_api import own_api
from rskip.serving.page import page
from rskip.serving.service import Service

with extra("serve", what="a server"):
    from fastapi import FastAPI, Request
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware.cors import CORSMiddleware
    from starlette.responses import JSONResponse, Response
    from starlette.types import ASGIApp


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
    app = FastAPI(title="rskip", version=rskip.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    for api in (libretranslate_api, own_api, images_api, completions_api, page):
        app.include_router(api(service))
    _add_health(app, service)
    _add_errors(app)
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=[*origins], allow_methods=["GET", "POST"],
            allow_headers=["Content-Type", "Authorization"],
        )  # fmt: skip
    guarded = Guard(app, service.settings, hosts=hosts, origins=origins)
    return AccessLog(guarded, service.metrics, write=log, with_texts=log_texts)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/ready", tags=["operation"])
    async def ready() -> Response:
        """Whether the server accepts work."""
        alive = service.batcher.alive
        return JSONResponse({"status": "ready" if alive else "shutting down"}, 200 if alive else 503)

    @app.get("/metrics", tags=["operation"])
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestError)
    async def request_error(request: Request, error: RequestError) -> Response:
        return error_response(request, error.status, error.message, error.retry_after)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        return error_response(request, error.status_code, str(error.detail))

    @app.exception_handler(Exception)  # AccessLog logs it
    async def unexpected(request: Request, error: Exception) -> Response:
        return error_response(request, 500, "the server failed on this request; its log says why")


def error_response(request: Request, status: int, message: str, retry_after: int | None = None) -> Response:
    """An error as clients of the route expect it: LibreTranslate's form, or OpenAI's for /v1/completions."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    error: Any = message
    if request.url.path == "/v1/completions":
        status = {403: 401, 422: 400}.get(status, status)  # a wrong key, a prompt that can't be read
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers=headers)
