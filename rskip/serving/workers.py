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

from rskip.serving.errors import RequestError
from rskip.serving.models import Models
from rskip.serving.queue import EachStep
from rskip.serving.supervisor import Hire
from rskip.serving.translating import TranslationLane

Compute = Callable[[TranslationLane, Sequence[Any], EachStep], Sequence[Any]]
_CANCEL = b""  # to a worker
_OFTEN = 0.05  # seconds between two checks whether a batch is still wanted
_PATIENCE = 20.0  # seconds in which a worker must end a cancelled computation


class WorkerLost(Exception):
    """Raised if two workers ended while they computed the same batch."""


class _Cancelled(Exception):
    pass


class Worker:
    """The server's side of one worker process. A batch of a worker that was killed goes to its replacement, once.

    :param hire: starts and kills worker processes.
    :param lost: called for each worker that was lost.
    """

    def __init__(self, hire: Hire, models: Models, *, lost: Callable[[], None]) -> None:
        self._hire, self._models, self._lost = hire, models, lost
        self._connection: Connection | None = None  # to a worker that waits for a request

    def compute(self, lane: TranslationLane, items: Sequence[Any], each_step: EachStep) -> Sequence[Any]:
        """The results of the items, as `TranslationLane.compute` returns them.

        :param each_step: called often. What it raises ends the worker's computation, or the worker if it hangs.
        :raises WorkerLost: the replacement was lost too.
        :raises RequestError: no worker could be started.
        """
        request = pickle.dumps((_dumps(lane, self._models), [*items]))
        for _ in range(2):
            connection = self._waiting_worker()
            try:
                answer = self._answer(connection, request, each_step)
            except (EOFError, OSError):
                self._lost()
                continue
            results = pickle.loads(answer)
            if isinstance(results, Exception):
                raise results
            return results
        raise WorkerLost("two worker processes ended while they computed the same batch")

    def _waiting_worker(self) -> Connection:
        """The connection to a worker that waits for a request: a new one if the last one has ended meanwhile, which
        takes none of the batch's attempts."""
        connection, self._connection = self._connection, None
        if connection is not None:
            if not connection.poll():
                return connection
            connection.close()
            self._lost()
        try:
            return Connection(self._hire().detach())
        except OSError as error:
            raise RequestError(503, "no worker process could be started: try again later", retry_after=5) from error

    def _answer(self, connection: Connection, request: bytes, each_step: EachStep) -> bytes:
        """Keeps the connection only if the worker waits for the next request."""
        step = 0
        try:
            connection.send_bytes(request)
            while True:
                if connection.poll(_OFTEN):
                    content = connection.recv_bytes()
                    self._connection = connection
                    return content
                step += 1
                try:
                    each_step(step)
                except BaseException:
                    if self._cancelled(connection):
                        self._connection = connection
                    raise
        finally:
            if self._connection is None:
                connection.close()

    def _cancelled(self, connection: Connection) -> bool:
        """Ends the worker's computation. A worker that does not answer in time is killed, which returns False."""
        try:
            connection.send_bytes(_CANCEL)
            if connection.poll(_PATIENCE):
                connection.recv_bytes()  # each request has one answer, if only that it was cancelled
                return True
            self._hire.kill(connection.fileno())
        except (EOFError, OSError):
            pass
        self._lost()
        return False


def work(server: socket.socket, models: Models) -> None:
    """Computes the batches that the server sends, until it closes the socket."""
    connection = Connection(server.detach())

    def check(step: int) -> None:
        if select.select([connection], [], [], 0)[0]:  # a cancellation, or the server's end
            raise _Cancelled

    while True:
        try:
            if request := connection.recv_bytes():  # else a cancellation, which may have come too late
                connection.send_bytes(_answered(request, models, check))
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
