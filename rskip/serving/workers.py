"""Computes batches in worker processes, which can be killed without loss of a request."""

from __future__ import annotations

import io
import pickle
import select
import socket
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from rskip.serving.jobs import EachStep, Lane
from rskip.serving.models import Models

Compute = Callable[[Lane, Sequence[Any], EachStep], Sequence[Any]]
_CANCEL = b""  # to a worker
_PART, _RESULT = b"p", b"r"  # first byte of a worker's messages
_OFTEN = 0.05  # seconds between two checks whether a batch is still wanted


class WorkerLost(Exception):
    """Raised if two workers ended while they computed the same batch."""


class _Cancelled(Exception):
    pass


class Worker:
    """The server's side of one worker process. A batch of a worker that was killed goes to its replacement, once.

    :param hire: starts a worker process and returns the socket to it.
    :param lost: called for each worker that was lost.
    """

    def __init__(self, hire: Callable[[], socket.socket], models: Models, *, lost: Callable[[], None]) -> None:
        self._hire, self._models, self._lost = hire, models, lost
        self._connection: Connection | None = None

    def compute(self, lane: Lane, items: Sequence[Any], each_step: EachStep) -> Sequence[Any]:
        """The results of the items, as `Lane.compute` returns them.

        :param each_step: called often. What it raises ends the worker's computation.
        :raises WorkerLost: the replacement was lost too.
        """
        request = pickle.dumps((_dumps(lane, self._models), [*items]))
        told = 0

        def tell(step: int, part: str, characters: int) -> None:
            nonlocal told
            each_step(step, part[len(part) - max(characters - told, 0) :])  # a replacement begins again
            told = max(told, characters)

        for _ in range(2):
            try:
                answer = self._answer(request, tell)
            except (EOFError, OSError):
                self._connection = None
                self._lost()
                continue
            results = pickle.loads(answer)
            if isinstance(results, Exception):
                raise results
            return results
        raise WorkerLost("two worker processes ended while they computed the same batch")

    def _answer(self, request: bytes, tell: Callable[[int, str, int], None]) -> bytes:
        if self._connection is None:
            self._connection = Connection(self._hire().detach())
        connection, step, characters = self._connection, 0, 0
        connection.send_bytes(request)
        while True:
            step, part = step + 1, ""
            if connection.poll(_OFTEN):
                message = connection.recv_bytes()
                if message[:1] == _RESULT:
                    return message[1:]
                part = message[1:].decode()
                characters += len(part)
            try:
                tell(step, part, characters)
            except BaseException:
                connection.send_bytes(_CANCEL)
                while connection.recv_bytes()[:1] != _RESULT:
                    pass
                raise


def work(server: socket.socket, models: Models) -> None:
    """Computes the batches that the server sends, until it closes the socket."""
    connection = Connection(server.detach())

    def check(step: int, part: str = "") -> None:
        if part:
            connection.send_bytes(_PART + part.encode())
        if select.select([connection], [], [], 0)[0]:  # a cancellation, or the server's end
            raise _Cancelled

    while True:
        try:
            if request := connection.recv_bytes():  # else a cancellation that came too late
                connection.send_bytes(_RESULT + _answered(request, models, check))
        except (EOFError, OSError):
            return


def _answered(request: bytes, models: Models, check: EachStep) -> bytes:
    try:
        lane_content, items = pickle.loads(request)
        lane = _loads(lane_content, models)
        return pickle.dumps([*lane.compute(items, check)])
    except _Cancelled as error:
        return pickle.dumps(error)
    except ValueError as error:  # the request's fault; some errors of this kind can't be pickled
        return pickle.dumps(ValueError(str(error)))
    except Exception:
        return pickle.dumps(RuntimeError(f"a worker failed:\n{traceback.format_exc()}"))


def _dumps(value: Any, models: Models) -> bytes:
    """The value in bytes, with references in place of models."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return models.reference(value)

    buffer = io.BytesIO()
    Pickler(buffer).dump(value)
    return buffer.getvalue()


def _loads(content: bytes, models: Models) -> Any:
    class Unpickler(pickle.Unpickler):
        def persistent_load(self, reference: Any) -> Any:
            return models.referred(reference)

    return Unpickler(io.BytesIO(content)).load()
