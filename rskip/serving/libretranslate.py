"""LibreTranslate's API: /translate, /languages, /detect and /frontend/settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from rskip.corpora.cleaning.languages import rank_languages
from rskip.extras import extra
from rskip.serving.access_log import note
from rskip.serving.errors import RequestError
from rskip.serving.markup import Fragment
from rskip.serving.queue import Job
from rskip.serving.reading import documented, read_fields
from rskip.serving.service import Service, aside
from rskip.text.language_codes import language_name, short_code
from rskip.text.sentences import SplitText
from rskip.translation.translation import Translation

with extra("serve", what="a server"):
    from fastapi import APIRouter, Request
    from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class TranslateFields(msgspec.Struct, kw_only=True):
    """The fields of a request to /translate."""

    q: str | list[str]
    source: Annotated[str, Meta(description="language code, or auto")]
    target: Annotated[str, Meta(description="language code")]
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Meta(ge=0)] = 0
    model: Annotated[str | None, Meta(description="name of a model; default: the first one that fits")] = None
    api_key: str | None = None


class DetectFields(msgspec.Struct, kw_only=True):
    """The fields of a request to /detect."""

    q: str
    api_key: str | None = None


def libretranslate_api(service: Service) -> APIRouter:
    """The routes of LibreTranslate's API."""
    api = APIRouter(tags=["LibreTranslate"])

    @api.post("/translate", openapi_extra=documented(TranslateFields, forms=True))
    async def translate(request: Request) -> dict[str, Any]:
        """Translates a text or a list of texts, sentence by sentence."""
        service.check_key(request)
        fields = await read_fields(request)
        service.check_key(request, fields)
        return await _translate(service, request, _typed(fields, TranslateFields))

    @api.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """The languages of all models, each with the languages to which it is translated."""
        directions = service.models.directions()
        codes = dict.fromkeys([*directions, *(code for targets in directions.values() for code in targets)])
        return [{"code": code, "name": language_name(code), "targets": directions.get(code, [])} for code in codes]

    @api.post("/detect", openapi_extra=documented(DetectFields, forms=True))
    async def detect_language(request: Request) -> list[dict[str, Any]]:
        """The most probable languages of a text."""
        service.check_key(request)
        fields = await read_fields(request)
        service.check_key(request, fields)
        text = _typed(fields, DetectFields).q
        service.check_texts([text])
        found = await run_in_threadpool(rank_languages, text)
        likely = [each for each in found[:5] if each[1] >= 0.01] or found[:1]
        return [{"confidence": _percent(probability), "language": code} for code, probability in likely]

    @api.get("/frontend/settings")
    async def frontend_settings() -> dict[str, Any]:
        """Limits and defaults for a client."""
        directions = service.models.directions()
        source, target = next(((code, targets[0]) for code, targets in directions.items() if targets), ("", ""))
        return {
            "charLimit": service.settings.max_characters,
            "frontendTimeout": 500,
            "apiKeys": service.needs_key,
            "keyRequired": service.needs_key,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", source), ("target", target))
            },
        }

    return api


async def _translate(service: Service, request: Request, asked: TranslateFields) -> dict[str, Any]:
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    if asked.alternatives > (most := service.settings.max_beam - 1):
        raise RequestError(400, f"Invalid request: alternatives is {asked.alternatives}: expected at most {most}")
    characters = service.check_texts(texts)
    split = Fragment if asked.format == "html" else SplitText
    documents: list[Fragment | SplitText] = await aside(characters, lambda: [split(each) for each in texts])
    count = sum(len(each.sentences) for each in documents)
    service.check_sentences(count)
    note(request, texts, characters=characters, sentences=count)
    sources, detected = [asked.source] * len(texts), []
    if asked.source == "auto":
        detected = await run_in_threadpool(_detected, service, documents, asked.model, asked.target)
        sources = [each["language"] for each in detected]
    jobs: dict[str, Job] = {}  # texts in the same language share a job; those in the target language have none
    for source in dict.fromkeys(sources):
        if not service.models.same_language(source, asked.target):
            of_source = [document for document, its in zip(documents, sources, strict=True) if its == source]
            sentences = [sentence for document in of_source for sentence in document.sentences]
            job = await service.job(asked.model, source, asked.target, sentences, nbest=asked.alternatives + 1)
            translator = job.lane.translator
            note(
                request,
                model=job.lane.model,
                source=translator.source_language,
                target=translator.target_language,
            )
            jobs[source] = job
    found = dict(zip(jobs, map(iter, await service.results(request, *jobs.values())), strict=True))
    ranked = []  # the translations of each text, the best first
    for text, document, source in zip(texts, documents, sources, strict=True):
        if source in found:
            translations = [next(found[source]) for _ in document.sentences]
            ranked.append([document.joined(_of_rank(translations, rank)) for rank in _ranks(translations)])
        else:
            ranked.append([text])
    answer: dict[str, Any] = {"translatedText": [each[0] for each in ranked]}
    if asked.alternatives:
        answer["alternatives"] = [[*dict.fromkeys(each[1:])] for each in ranked]
    if detected:
        answer["detectedLanguage"] = detected
    return {name: each[0] for name, each in answer.items()} if isinstance(asked.q, str) else answer


def _ranks(translations: Sequence[Translation]) -> range:
    """The ranks that all sentences have: 0, and those of alternatives. A text without sentences has rank 0."""
    return range(min((len(each.hypotheses) for each in translations if each.hypotheses[0].tokens), default=1))


def _of_rank(translations: Sequence[Translation], rank: int) -> list[str]:
    """The sentences of this rank. A blank sentence has only one hypothesis."""
    return [each.hypotheses[min(rank, len(each.hypotheses) - 1)].text for each in translations]


def _detected(
    service: Service, documents: Sequence[SplitText | Fragment], model: str | None, target: str
) -> list[dict[str, Any]]:
    """The most probable language of each document, among the target and those that are translated to it."""
    directions = service.models.directions(model)
    wanted = short_code(target)
    among = [source for source, targets in directions.items() if wanted in map(short_code, targets)]
    if not among:
        raise RequestError(400, f"{target[:80]} is not supported")
    found = []
    for document in documents:
        probabilities = dict(rank_languages(" ".join(document.sentences)))  # among all languages
        best = max([*among, target], key=lambda code: probabilities.get(short_code(code), 0.0))
        found.append({"confidence": _percent(probabilities.get(short_code(best), 0.0)), "language": best})
    return found


def _typed(fields: dict[str, Any], kind: type[T]) -> T:
    """The fields of JSON or of a form, where fields that are not given may be empty."""
    given = {name: value for name, value in fields.items() if value is not None and (value != "" or name == "q")}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(400, f"Invalid request: {error}") from None


def _percent(probability: float) -> float:
    return round(100 * probability, 1)
