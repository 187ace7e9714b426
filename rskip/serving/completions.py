"""Continues texts with a language model, in the form of OpenAI's API: /v1/completions."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rskip.machine.extras import extra
from rskip.serving.access_log import note
from rskip.serving.errors import RequestError
from rskip.serving.jobs import EachStep, Job
from rskip.serving.reading import documented, read_json, typed
from rskip.serving.service import Service

with extra("serve", what="a server"):
    from fastapi import APIRouter, Request

_MOST_TOKENS = 10_000
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


@dataclass(frozen=True)
class CompletionLane:
    """Prompts for one language model."""

    model: str
    generator: Any

    def compute(self, items: Sequence[Prompt], each_step: EachStep) -> list[tuple[str, str] | Exception]:
        """The text after each prompt and why it ended, or the prompt's error."""
        found: list[tuple[str, str] | Exception] = []
        for item in items:
            try:
                found.append(self._completion(item, each_step))
            except ValueError as error:
                found.append(error)
        return found

    def _completion(self, item: Prompt, each_step: EachStep) -> tuple[str, str]:
        text = ""
        for step, part in enumerate(self.generator.stream(item.text, **item.options), start=1):
            each_step(step)
            text += part
            ends = [place for stop in item.stop if (place := text.find(stop)) >= 0]
            if ends:
                return text[: min(ends)], "stop"
        return text, "length"

    def produced(self, result: tuple[str, str]) -> int:
        """The characters of the text, since a generator doesn't tell its tokens."""
        return len(result[0])


def completions_api(service: Service) -> APIRouter:
    """The route for language models."""
    api = APIRouter(prefix="/v1", tags=["OpenAI"])

    @api.post("/completions", openapi_extra=documented(CompletionRequest))
    async def completions(request: Request) -> dict[str, Any]:
        """Continues prompts."""
        content = await read_json(request)
        service.check_key(request)
        for name in ("prompt", "stop"):
            if isinstance(content.get(name), str):
                content[name] = [content[name]]
        asked = typed({name: value for name, value in content.items() if value is not None}, CompletionRequest)
        if asked.stream:
            raise RequestError(400, "stream is true: the server answers only in one piece; leave it out")
        return await _completions(service, request, asked)

    return api


async def _completions(service: Service, request: Request, asked: CompletionRequest) -> dict[str, Any]:
    served = service.models.named(asked.model, "completion")
    characters = sum(map(len, asked.prompt))
    service.check_size(characters=characters, sentences=len(asked.prompt) * asked.n)
    note(request, asked.prompt, model=served.name, characters=characters)
    seed = random.getrandbits(32) if asked.seed is None else asked.seed
    prompts = [
        Prompt(
            text,
            {
                "length": asked.max_tokens, "temperature": asked.temperature, "top_p": asked.top_p, "seed": seed + draw,
            },
            [each for each in asked.stop if each],
        )
        for text in asked.prompt
        for draw in range(asked.n)
    ]  # fmt: skip
    lane = CompletionLane(served.name, served.model)
    found = await service.results(request, Job(lane, prompts, [asked.max_tokens] * len(prompts)))
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": served.name,
        "choices": [
            {"index": index, "text": text, "finish_reason": reason, "logprobs": None}
            for index, (text, reason) in enumerate(found)
        ],
    }
