"""Runs requests: checks their key, puts their jobs into the queue and waits for the results."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from rskip.extras import extra
from rskip.serving.batching import Batcher, compute_here
from rskip.serving.errors import GONE, RequestError
from rskip.serving.metrics import Metrics
from rskip.serving.models import Models
from rskip.serving.queue import Job
from rskip.serving.settings import ServerSettings
from rskip.serving.supervisor import Hire
from rskip.serving.workers import Compute, Worker

with extra("serve", what="a server"):
    from fastapi import Request

_LOG = logging.getLogger("rskip.serving")


class Service:
    """The models of a server with their queue, limits and keys.

    :param keys: API keys; if empty, requests need none.
    :param hire: starts and kills worker processes; None: this process computes.
    """

    def __init__(
        self, models: Models, settings: ServerSettings, *, keys: Collection[str] = (), hire: Hire | None = None
    ) -> None:
        self.models, self.settings = models, settings
        self.metrics, self.started = Metrics(), int(time.time())
        computers: list[Compute] = [compute_here]
        if hire is not None:
            computers = [Worker(hire, models, lost=self._lost_worker).compute for _ in range(settings.workers)]
        self.batcher = Batcher(settings, self.metrics, computers=computers)
        self._keys = [_digest(key) for key in keys]

    @property
    def needs_key(self) -> bool:
        return bool(self._keys)

    def _lost_worker(self) -> None:
        self.metrics.lost_workers.inc()
        _LOG.warning("a worker process ended: another one takes its place")

    def check_key(self, request: Request, content: Mapping[str, Any] | None = None) -> None:
        """Checks the key in the header `Authorization: Bearer KEY`, the address, or `api_key` in the content.

        :raises RequestError: a key is needed, and there is none or a wrong one.
        """
        if self._keys and not self.check_early(request):
            given = (content or {}).get("api_key")
            if not given:
                raise RequestError(403, "an API key is needed: give it as api_key, or as Authorization: Bearer KEY")
            self._compare(given)

    def check_early(self, request: Request) -> bool:
        """Checks the key in the header or the address before the content is read. Returns whether there is one.

        :raises RequestError: it is wrong.
        """
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = (key.strip() if scheme.lower() == "bearer" else "") or request.query_params.get("api_key", "")
        if given and self._keys:
            self._compare(given)
        return bool(given)

    def _compare(self, given: Any) -> None:
        found = [hmac.compare_digest(_digest(str(given)), known) for known in self._keys]
        if not any(found):
            raise RequestError(403, "Invalid API key")

    def check_size(self, *, characters: int, sentences: int) -> None:
        """:raises RequestError: the request has too many characters or sentences."""
        settings = self.settings
        if characters > settings.max_characters:
            limit = settings.max_characters
            raise RequestError(400, f"Invalid request: request ({characters}) exceeds text limit ({limit})")
        if sentences > settings.max_sentences:
            limit = settings.max_sentences
            raise RequestError(400, f"Invalid request: {sentences} sentences exceed the limit ({limit})")

    async def results(self, request: Request, *jobs: Job) -> list[Any]:
        """The results of all items of the request's jobs. The jobs end if the client goes away or the time is up.

        :raises RequestError: the queue is full, the time is up, or an item has an error.
        """
        found: asyncio.Future[Any] = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs))
        found.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio logs it
        gone: asyncio.Future[Any] = asyncio.create_task(_disconnected(request))
        try:
            for job in jobs:
                self.batcher.submit(job)
            await asyncio.wait({found, gone}, timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if found.done():
                return [result for results in found.result() for result in results]
        except ValueError as error:
            raise RequestError(422, str(error)) from error
        finally:
            for job in jobs:
                job.future.cancel()
            gone.cancel()
        if gone.done() and not gone.cancelled():
            raise RequestError(GONE, "the client has gone")
        raise RequestError(504, f"no result within {self.settings.timeout:g} s: send less, or try again later")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
