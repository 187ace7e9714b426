"""The page at `/`: text and images in the browser. It loads nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from rskip.machine.extras import extra
from rskip.serving.service import Service

with extra("serve", what="a server"):
    from fastapi import APIRouter
    from starlette.responses import Response

_FILES = Path(__file__).parent / "page_files"
_TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(service: Service) -> APIRouter:
    """The routes of the page and its two files."""
    api = APIRouter(include_in_schema=False)

    def add(path: str, name: str) -> None:
        content = (_FILES / name).read_bytes()

        @api.get(path)
        async def file() -> Response:
            return Response(content, media_type=_TYPES[name], headers={"Content-Security-Policy": _POLICY})

    for name in _TYPES:
        add("/" if name == "index.html" else f"/{name}", name)
    return api
