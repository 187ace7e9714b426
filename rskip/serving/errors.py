"""Errors that the server answers with a status and one line."""

from __future__ import annotations

from typing import Any

from rskip.machine.extras import extra

with extra("serve", what="a server"):
    from starlette.responses import JSONResponse

FAILED = "the server failed on this request; its log says why"
GONE = 499  # status in the log for a client that closed its connection


class RequestError(Exception):
    """Raised for a request that can't be answered.

    :param status: HTTP status of the answer.
    :param message: one line for the client.
    :param retry_after: seconds after which the client may try again.
    """

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.message = " ".join(message.split())


def wrong_request(error: ValueError) -> RequestError:
    """The answer to a request with a wrong value."""
    return RequestError(400, str(error) or type(error).__name__)


def error_response(path: str, error: RequestError) -> JSONResponse:
    """An error as clients of the route expect it: LibreTranslate's form, or OpenAI's for /v1/completions."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    content: Any = error.message
    status = error.status
    if path == "/v1/completions":
        status = {403: 401, 422: 400}.get(status, status)  # a wrong key, a prompt that can't be read
        kind = "invalid_request_error" if status < 500 else "server_error"
        content = {"message": error.message, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": content}, status, headers=headers)
