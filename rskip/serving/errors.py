"""Errors that the server answers with a status and one line."""

from __future__ import annotations


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
