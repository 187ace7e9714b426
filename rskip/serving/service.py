"""Runs requests: checks their keys and limits, makes jobs of their sentences, and waits for the results."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from rskip.extras import extra
from rskip.generation import SearchOptions
from rskip.serving.errors import GONE, RequestError, wrong_request
from rskip.serving.metrics import Metrics
from rskip.serving.models import Models
from rskip.serving.queue import Batcher, Job, Lane
from rskip.serving.settings import ServerSettings
from rskip.settings.errors import SettingError
from rskip.translation import Translator
from rskip.translation.segments import Source
from rskip.translation.translation import SentenceError

with extra("serve", what="a server"):
    from fastapi import Request
    from starlette.concurrency import run_in_threadpool

T = TypeVar("T")
_SHORT = 1_000  # characters; tokenising them takes 1.4 ms, and handing work to another thread 0.3 ms
_LONGEST_WORD = 2_000  # byte-pair encoding takes quadratic time: 25 s for 100,000 letters
_WORD = re.compile(r"[^\s。！？]+")


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
        """Checks the key in the header `Authorization: Bearer KEY`, in the address, or in the content as `api_key`.

        :param content: None: it was not read yet and may have the key.
        :raises RequestError: a key is needed, and there is none or a wrong one.
        """
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given: object = (key.strip() if scheme.lower() == "bearer" else "") or request.query_params.get("api_key")
        given = given or (content or {}).get("api_key")
        if self._keys and given and not any([hmac.compare_digest(_digest(str(given)), key) for key in self._keys]):
            raise RequestError(403, "Invalid API key")
        if self._keys and not given and content is not None:
            raise RequestError(403, "an API key is needed: give it as api_key, or as Authorization: Bearer KEY")

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

    async def job(
        self,
        model: str | None,
        source: str | None,
        target: str | None,
        sentences: Sequence[str],
        *,
        nbest: int,
        beam: int | None = None,
        **given: object,
    ) -> Job:
        """The translation of sentences as a job, for which they are converted to tokens.

        :param model, source, target: see `Models.translator`.
        :param beam: default: the model's, and at least `nbest`.
        :param given: further fields of `SearchOptions`; None: not given.
        :raises RequestError: no model fits, an option is not possible or above the server's maximum, or a sentence
            can't be translated or has a word that is too long for the tokeniser.
        """
        name, translator = self.models.translator(model, source, target)
        most = self.settings.max_beam
        beam = max(nbest, min(translator.options.beam, most)) if beam is None else beam
        for option, value in (("nbest", nbest), ("beam", beam)):
            if value > most:
                raise RequestError(400, f"{option} is {value}: expected at most {most}, the server's maximum")
        options = translator.options
        asked = {**given, "nbest": nbest, "beam": beam}
        changes = {name: value for name, value in asked.items() if value not in (None, getattr(options, name))}
        try:
            if changes:  # checking all options takes as long as tokenising a sentence
                options = options.changed(changes)
            sources = await aside(sum(map(len, sentences)), lambda: _read(translator, sentences, options))
        except (SettingError, SentenceError) as error:
            raise wrong_request(error) from None
        lane = Lane(name, translator, options, self.settings.batch_tokens)
        return Job(lane, sources, [sum(len(segment) + 1 for segment in each.segments) for each in sources])

    async def results(self, request: Request, *jobs: Job) -> list[Sequence[Any]]:
        """The results of each of the request's jobs. The jobs end if the client goes away or the time is up.

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
                return [*found.result()]
        except ValueError as error:
            raise RequestError(422, str(error)) from error
        finally:
            for job in jobs:
                job.future.cancel()
            gone.cancel()
        if gone.done() and not gone.cancelled():
            raise RequestError(GONE, "the client has gone")
        raise RequestError(504, f"no result within {self.settings.timeout:g} s: send less, or try again later")


def _read(translator: Translator, sentences: Sequence[str], options: SearchOptions) -> list[Source]:
    if any(len(word[0]) > _LONGEST_WORD for each in sentences for word in _WORD.finditer(each)):
        raise RequestError(400, f"a word is too long: expected a space after at most {_LONGEST_WORD:,} characters")
    return translator.read(sentences, options)


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
