"""Continues texts with a language model, in the form of OpenAI's API: /v1/completions."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rskip.language_modeling.stopping import StopStrings
from rskip.machine.extras import extra
from rskip.serving.access_log import note
from rskip.serving.errors import FAILED, RequestError, error_response
from rskip.serving.jobs import EachStep, Job
from rskip.serving.reading import documented, read_json, typed
from rskip.serving.service import Service

with extra("serve", what="a server"):
    from fastapi import APIRouter, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse

_LOG = logging.getLogger("rskip.serving")
_MOST_TOKENS = 10_000
_MOST_STOPS = 4  # OpenAI's limit
# parameters of OpenAI's that clients send although the values change nothing
_NEUTRAL: dict[str, Any] = {
    "frequency_penalty": 0, "presence_penalty": 0, "best_of": 1, "echo": False, "logit_bias": {},
}  # fmt: skip
_NOT_SUPPORTED = (*_NEUTRAL, "logprobs", "stream_options", "suffix")  # parameters of OpenAI's
_Texts = Annotated[list[str], Meta(description="one text is also accepted")]


class CompletionRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request to /v1/completions."""

    model: str | None = None
    prompt: _Texts
    max_tokens: Annotated[int, Meta(ge=1, le=_MOST_TOKENS)] = 16
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    n: Annotated[int, Meta(ge=1, le=16)] = 1
    stop: _Texts = []
    seed: Annotated[int, Meta(ge=0, le=2**62)] | None = None
    stream: bool = False
    user: str | None = None


@dataclass(frozen=True)
class Prompt:
    """A text to continue, and how."""

    text: str
    options: dict[str, Any]
    stop: Sequence[str]
    in_parts: bool = False


@dataclass(frozen=True)
class Completion:
    """The text after a prompt, why it ended, and the number of tokens that were read and made."""

    text: str
    reason: str
    read: int
    made: int


@dataclass(frozen=True, eq=False)
class CompletionLane:
    """One prompt for a language model. A lane equals only itself, so prompts are computed one by one."""

    model: str
    generator: Any

    def compute(self, items: Sequence[Prompt], each_step: EachStep) -> list[Completion]:
        """The completion of each prompt."""
        return [self._completion(item, each_step) for item in items]

    def _completion(self, item: Prompt, each_step: EachStep) -> Completion:
        made, stop = 0, StopStrings(item.stop)

        def count(step: int) -> None:
            nonlocal made
            made = step
            each_step(step)

        text = ""
        for part in stop.before(self.generator.stream(item.text, each_step=count, **item.options)):
            text += part
            if item.in_parts:
                each_step(made, part)
        reason = "stop" if stop.found else "length"
        return Completion(text, reason, read=len(self.generator.tokens.encode(item.text)), made=made)

    def produced(self, result: Completion) -> int:
        """The tokens of the text."""
        return result.made


def completions_api(service: Service) -> APIRouter:
    """The route for language models."""
    api = APIRouter(prefix="/v1", tags=["OpenAI"])

    @api.post("/completions", openapi_extra=documented(CompletionRequest))
    async def completions(request: Request) -> Response:
        """Continues prompts."""
        service.check_key(request)
        content = await read_json(request)
        for name in ("prompt", "stop"):
            if isinstance(content.get(name), str):
                content[name] = [content[name]]
        given = {
            name: value for name, value in content.items()
            if value is not None and not (name in _NEUTRAL and value == _NEUTRAL[name])
        }  # fmt: skip
        for name in _NOT_SUPPORTED:
            if name in given:
                raise RequestError(400, f"{name} is not supported: leave it out")
        if "prompt" not in given:
            raise RequestError(400, "prompt is missing: expected a text or a list of texts")
        return await _completions(service, request, typed(given, CompletionRequest))

    return api


async def _completions(service: Service, request: Request, asked: CompletionRequest) -> Response:
    served = service.models.named(asked.model, "completion")
    if len(asked.stop) > _MOST_STOPS:
        raise RequestError(400, f"stop has {len(asked.stop):,} texts: expected at most {_MOST_STOPS}")
    characters = sum(map(len, asked.prompt))
    service.check_size(characters=characters + sum(map(len, asked.stop)), sentences=len(asked.prompt) * asked.n)
    note(request, asked.prompt, model=served.name, characters=characters)
    seed = random.getrandbits(32) if asked.seed is None else asked.seed
    prompts = [
        Prompt(
            text,
            {
                "length": asked.max_tokens, "temperature": asked.temperature, "top_p": asked.top_p, "seed": seed + draw,
            },
            asked.stop,
            in_parts=asked.stream,
        )
        for text in asked.prompt
        for draw in range(asked.n)
    ]  # fmt: skip
    jobs = [Job(CompletionLane(served.name, served.model), [each], [asked.max_tokens]) for each in prompts]
    name, now = f"cmpl-{uuid.uuid4().hex}", int(time.time())
    answer = {"id": name, "object": "text_completion", "created": now, "model": served.name}
    if asked.stream:
        return await _stream(service, request, jobs, answer)
    found: list[Completion] = await service.results(request, *jobs)
    read, made = sum(each.read for each in found[:: asked.n]), sum(each.made for each in found)
    choices = [_choice(index, each.text, each.reason) for index, each in enumerate(found)]
    usage = {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}
    return JSONResponse({**answer, "choices": choices, "usage": usage})


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": None}


async def _stream(service: Service, request: Request, jobs: Sequence[Job], answer: dict[str, Any]) -> Response:
    """The texts in parts, as server-sent events. An error before the first part has its own status."""
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()  # None: the end
    for index, job in enumerate(jobs):
        job.tell = partial(_put, loop, parts, index)
    results = asyncio.create_task(service.results(request, *jobs))
    results.add_done_callback(lambda done: parts.put_nowait(None))
    first = await parts.get()
    if first is None:
        await results

    async def events() -> AsyncIterator[str]:
        try:
            part = first
            while part is not None:
                yield _event({**answer, "choices": [_choice(*part, None)]})
                part = await parts.get()
            for index, each in enumerate(await results):
                yield _event({**answer, "choices": [_choice(index, "", each.reason)]})
            yield "data: [DONE]\n\n"
        except Exception as error:
            if not isinstance(error, RequestError):
                _LOG.exception("a stream failed")
                error = RequestError(500, FAILED)
            yield f"data: {bytes(error_response(request.url.path, error).body).decode()}\n\n"
        finally:
            results.cancel()

    return StreamingResponse(events(), media_type="text/event-stream")


def _put(loop: asyncio.AbstractEventLoop, parts: asyncio.Queue[Any], index: int, part: str) -> None:
    loop.call_soon_threadsafe(parts.put_nowait, (index, part))


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
