"""Our own API for text: /v1/translate and /v1/models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rskip.extras import extra
from rskip.generation.options import SearchOptions
from rskip.serving.access_log import note
from rskip.serving.errors import RequestError
from rskip.serving.models import ServedModel
from rskip.serving.reading import documented, read_json, typed
from rskip.serving.service import Service, aside
from rskip.text.language_codes import language_name
from rskip.text.sentences import SplitText
from rskip.translation.translation import TranslatedHypothesis, Translation

with extra("serve", what="a server"):
    from fastapi import APIRouter, Request
    from starlette.responses import Response

_MOST_ATTENTION = 10_000_000  # values per answer


class TranslateRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request to /v1/translate."""

    text: Annotated[list[str], Meta(description="texts, or one text")]
    source: Annotated[str | None, Meta(description="source language; default: the model's")] = None
    target: Annotated[str | None, Meta(description="target language; default: the model's")] = None
    model: Annotated[str | None, Meta(description="name of a model; default: the first one that fits")] = None
    split: Annotated[bool, Meta(description="give the hypotheses of each sentence, not of each text")] = False
    nbest: Annotated[int, Meta(ge=1, description="hypotheses per text, or per sentence with split")] = 1
    beam: Annotated[int, Meta(ge=1, description="default: the model's, at least nbest")] | None = None
    length_penalty: float | None = None
    no_repeat_ngram: int | None = None
    token_scores: Annotated[bool, Meta(description="give the log-probability of each token")] = False
    alignment: Annotated[bool, Meta(description="give the source token of each target token")] = False
    attention: Annotated[bool, Meta(description="give the attention of each token over the source's tokens")] = False
    api_key: str | None = None


def own_api(service: Service) -> APIRouter:
    """The routes of our API for text."""
    api = APIRouter(prefix="/v1", tags=["rskip"])

    @api.post("/translate", openapi_extra=documented(TranslateRequest))
    async def translate(request: Request) -> Response:
        """Translates sentences, with scores, n-best lists, alignments and notes."""
        service.check_key(request)
        content = await read_json(request)
        service.check_key(request, content)
        if isinstance(content.get("text"), str):
            content["text"] = [content["text"]]
        return await _translate(service, request, typed(content, TranslateRequest))

    @api.get("/models")
    async def models(request: Request) -> dict[str, Any]:
        """The models that requests can name."""
        service.check_key(request, {})
        return {"object": "list", "data": [_description(each, service.started) for each in service.models]}

    return api


async def _translate(service: Service, request: Request, asked: TranslateRequest) -> Response:
    characters = service.check_texts(asked.text)
    texts = await aside(characters, lambda: [SplitText(each) for each in asked.text]) if asked.split else None
    parts = [each.sentences for each in texts] if texts else [[each] for each in asked.text]
    sentences = [sentence for part in parts for sentence in part]
    service.check_sentences(len(sentences))
    job = await service.job(
        asked.model,
        asked.source,
        asked.target,
        sentences,
        nbest=asked.nbest,
        beam=asked.beam,
        length_penalty=asked.length_penalty,
        no_repeat_ngram=asked.no_repeat_ngram,
        token_scores=asked.token_scores,
        attention=asked.alignment or asked.attention,
    )
    lane = job.lane
    note(request, asked.text, model=lane.model, characters=characters, sentences=len(sentences))
    values = _attention_values(job.sizes, lane.options) if lane.options.attention else asked.nbest * characters
    found = iter((await service.results(request, job))[0])
    translations = [[next(found) for _ in part] for part in parts]

    def answer() -> bytes:
        return msgspec.json.encode(
            {
                "model": lane.model,
                "source": lane.translator.source_language,
                "target": lane.translator.target_language,
                "translations": [
                    {
                        "text": _joined(each, None if texts is None else texts[number]),
                        "sentences": [_sentence(translation, asked) for translation in each],
                    }
                    for number, each in enumerate(translations)
                ],
            }
        )

    return Response(await aside(values, answer), media_type="application/json")


def _attention_values(sizes: Sequence[int], options: SearchOptions) -> int:
    """The largest number of values that the attention of a request can have.

    :raises RequestError: they could take too much memory.
    """
    values = options.nbest * sum(size * (options.max_length(size) + 1) for size in sizes)
    if values > _MOST_ATTENTION:
        raise RequestError(
            400,
            f"alignment and attention need up to {values:,} values for this text: expected at most "
            f"{_MOST_ATTENTION:,}; send fewer sentences, or ask for a smaller nbest",
        )
    return values


def _joined(translations: list[Translation], text: SplitText | None) -> str:
    best = [each.text for each in translations]
    return best[0] if text is None else text.joined(best)


def _sentence(translation: Translation, asked: TranslateRequest) -> dict[str, Any]:
    return {
        "source": translation.source,
        "source_tokens": translation.source_tokens,
        "hypotheses": [_hypothesis(each, asked) for each in translation.hypotheses],
        "notes": translation.notes,
    }


def _hypothesis(found: TranslatedHypothesis, asked: TranslateRequest) -> dict[str, Any]:
    values: dict[str, Any] = {"text": found.text, "score": found.score, "tokens": found.tokens}
    if asked.token_scores:
        values["token_scores"] = found.token_scores
    if asked.alignment:
        values["alignment"] = found.alignment
    if asked.attention:
        values["attention"] = None if found.attention is None else found.attention.astype(float).round(4).tolist()
    return values


def _description(served: ServedModel, created: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": served.name,
        "object": "model",
        "created": created,
        "owned_by": "rskip",
        "kind": "translation",
    }
    for side, codes in (("sources", served.sources), ("targets", served.targets)):
        values[side] = [{"code": code, "name": language_name(code)} for code in codes]
    return {**values, "connection": served.model.model.connection or None}
