"""Translates the sentences of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rskip.extras import extra
from rskip.generation.options import SearchOptions
from rskip.serving.errors import RequestError, wrong_request
from rskip.serving.queue import EachStep, Job
from rskip.translation.search import ModelSearcher
from rskip.translation.translation import SentenceError, Translation

with extra("serve", what="a server"):
    from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from rskip.translation import Translator
    from rskip.translation.segments import Source


T = TypeVar("T")
_SHORT = 1_000  # characters; tokenising them takes 1.4 ms, and handing work to another thread 0.3 ms


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of `work`. If it may take long, it runs in another thread, so that it delays no other request.

    :param size: the characters or values in which its time is about linear.
    """
    return work() if size <= _SHORT else await run_in_threadpool(work)


@dataclass(frozen=True)
class TranslationLane:
    """Computes sentences for one translator with the same options. Equal lanes share batches."""

    model: str
    translator: Translator
    options: SearchOptions
    max_tokens: int

    def compute(self, items: Sequence[Source], each_step: EachStep) -> list[Translation]:
        """The translations of the sources."""
        searcher = ModelSearcher(self.translator.model, each_step)
        return self.translator.search(items, self.options, max_tokens=self.max_tokens, searcher=searcher)

    def produced(self, result: Translation) -> int:
        """The tokens of the best translation."""
        return len(result.hypotheses[0].tokens)


def translation_job(lane: TranslationLane, sentences: Sequence[str]) -> Job:
    """Converts sentences to tokens, which takes time, and makes a job of them.

    :raises RequestError: a sentence can't be translated.
    """
    try:
        sources = lane.translator.read(sentences, lane.options)
    except SentenceError as error:
        raise wrong_request(error) from None
    return Job(lane, sources, [sum(len(segment) + 1 for segment in each.segments) for each in sources])


def search_options(
    model: Translator, *, max_beam: int, nbest: int = 1, beam: int | None = None, **given: object
) -> SearchOptions:
    """The model's options with those of a request. The beam is at least `nbest`.

    :param given: further fields of `SearchOptions`; None: not given.
    :raises RequestError: a value is not possible, or the beam is more than `max_beam`.
    """
    if beam is None:
        beam = max(nbest, min(model.options.beam, max_beam))
    for name, value in (("nbest", nbest), ("beam", beam)):
        if value > max_beam:
            raise RequestError(400, f"{name} is {value}: expected at most {max_beam}, the server's maximum")
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        return model.options.changed({**settings, "nbest": nbest, "beam": beam})
    except ValueError as error:
        raise wrong_request(error) from None
