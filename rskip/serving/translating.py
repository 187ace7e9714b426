"""Translates the sentences of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rskip.generation.options import SearchOptions
from rskip.serving.errors import RequestError, wrong_request
from rskip.serving.jobs import EachStep, Job
from rskip.translation.translation import SentenceError, Translation

if TYPE_CHECKING:
    from rskip.captioning.captioner import Captioner
    from rskip.translation import Translator
    from rskip.translation.segments import Source


@dataclass(frozen=True)
class TranslationLane:
    """Sentences for one translator with the same options."""

    model: str
    translator: Translator
    options: SearchOptions
    max_tokens: int

    def compute(self, items: Sequence[Source], each_step: EachStep) -> list[Translation]:
        """The translations of the sources."""
        from rskip.translation.search import ModelSearcher

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


def search_options(model: Translator | Captioner, *, max_beam: int, **given: object) -> SearchOptions:
    """The model's options with those of a request. The beam is at least `nbest`.

    :param given: fields of `SearchOptions`; None: not given.
    :raises RequestError: a value is not possible, or the beam is more than `max_beam`.
    """
    options = model.options
    settings = {name: value for name, value in given.items() if value is not None}
    nbest = settings.get("nbest", 1)
    if "beam" not in settings and isinstance(nbest, int):
        settings["beam"] = max(nbest, min(options.beam, max_beam))
    for name in ("nbest", "beam"):
        value = settings.get(name)
        if isinstance(value, int) and value > max_beam:
            raise RequestError(400, f"{name} is {value}: expected at most {max_beam}, the server's maximum")
    try:
        return options.changed(settings)
    except ValueError as error:
        raise wrong_request(error) from None
