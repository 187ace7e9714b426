"""Runs requests: checks their keys and limits, makes jobs of their sentences, and waits for the results."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rskip.extras import extra
from rskip.generation.options import SearchOptions
from rskip.serving.errors import GONE, RequestError, wrong_request
from rskip.serving.metrics import Metrics
from rskip.serving.models import Models
from rskip.serving.queue import Batcher, EachStep, Job
from rskip.serving.settings import ServerSettings
from rskip.translation import Translator
from rskip.translation.search import ModelSearcher
from rskip.translation.segments import Source
from rskip.translation.translation import SentenceError, Translation

with extra("serve", what="a server"):
    from fastapi import Request
    from starlette.concurrency import run_in_threadpool

T = TypeVar("T")
_SHORT = 1_000  # characters; tokenising them takes 1.4 ms, and handing work to another thread 0.3 ms
_LONGEST_WORD = 2_000  # byte-pair encoding takes quadratic time: 25 s for 100,000 letters
_LONG_WORD = re.compile(rf"[^\s。！？]{{{_LONGEST_WORD + 1}}}")


@dataclass(frozen=True)
class TranslationLane:
    """Translates sentences by one translator with the same options."""

    model: str
    translator: Translator
    options: SearchOptions
    max_tokens: int

    def compute(self, items: Sequence[Source], each_step: EachStep) -> list[Translation]:
        searcher = ModelSearcher(self.translator.model, each_step)
        return self.translator.search(items, self.options, max_tokens=self.max_tokens, searcher=searcher)

    def produced(self, result: Translation) -> int:
        return len(result.hypotheses[0].tokens)


class Service:
    """The models of a server with their queue, limits and keys.

    :param keys: API keys; if empty, requests need none.
    """

    def __init__(self, models: Models, settings: ServerSettings, *, keys: Collection[str] = ()) -> None:
        self.models, self.settings = models, settings
        self.metrics, self.started = Metrics(), int(time.time())
        self.batcher = Batcher(settings, self.metrics)
        self._keys = [_digest(key) for key in keys]

    @property
    def needs_key(self) -> bool:
        return bool(self._keys)

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

    def check_texts(self, texts: Sequence[str]) -> int:
        """The number of characters of a request's texts. Raises a `RequestError` if there are too many of either."""
        characters, limit = sum(map(len, texts)), self.settings.max_characters
        if characters > limit:
            raise RequestError(400, f"Invalid request: request ({characters}) exceeds text limit ({limit})")
        self.check_sentences(len(texts))
        return characters

    def check_sentences(self, count: int) -> None:
        """Raises a `RequestError` if a request has too many sentences."""
        if count > (limit := self.settings.max_sentences):
            raise RequestError(400, f"Invalid request: {count} sentences exceed the limit ({limit})")

    def options(self, translator: Translator, *, nbest: int, beam: int | None = None, **given: object) -> SearchOptions:
        """The translator's options with those of a request. The beam is at least `nbest`.

        :param given: further fields of `SearchOptions`; None: not given.
        :raises RequestError: a value is not possible, or the beam is more than the server's maximum.
        """
        most = self.settings.max_beam
        if beam is None:
            beam = max(nbest, min(translator.options.beam, most))
        for name, value in (("nbest", nbest), ("beam", beam)):
            if value > most:
                raise RequestError(400, f"{name} is {value}: expected at most {most}, the server's maximum")
        settings = {name: value for name, value in given.items() if value is not None}
        try:
            return translator.options.changed({**settings, "nbest": nbest, "beam": beam})
        except ValueError as error:
            raise wrong_request(error) from None

    async def job(self, model: str, translator: Translator, options: SearchOptions, sentences: Sequence[str]) -> Job:
        """The translation of sentences as a job, for which they are converted to tokens.

        :raises RequestError: a sentence can't be translated, or has a word that is too long for the tokeniser.
        """
        if any(map(_LONG_WORD.search, sentences)):
            raise RequestError(400, f"a word is too long: expected a space after at most {_LONGEST_WORD:,} characters")
        try:
            sources = await aside(sum(map(len, sentences)), lambda: translator.read(sentences, options))
        except SentenceError as error:
            raise wrong_request(error) from None
        lane = TranslationLane(model, translator, options, self.settings.batch_tokens)
        return Job(lane, sources, [sum(len(segment) + 1 for segment in each.segments) for each in sources])

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


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of `work`. If it may take long, it runs in another thread, so that it delays no other request.

    :param size: the characters or values in which its time is about linear.
    """
    return work() if size <= _SHORT else await run_in_threadpool(work)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
