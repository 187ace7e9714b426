"""Errors that the server answers with a status and one line."""

from __future__ import annotations

from rskip.extras import extra

with extra("serve", what="a server"):
    from starlette.responses import JSONResponse

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


def error_response(error: RequestError) -> JSONResponse:
    """An error in LibreTranslate's form."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"error": error.message}, error.status, headers=headers)
