"""Reads the content of a request: JSON, or a form for LibreTranslate's clients."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from rskip.machine.extras import extra
from rskip.serving.errors import RequestError, wrong_request
from rskip.settings.check import convert
from rskip.settings.errors import shown

with extra("serve", what="a server"):
    from fastapi import Request

T = TypeVar("T")

_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"


def content_type(request: Request) -> str:
    """The request's type of content, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body.

    :raises RequestError: the body is something else.
    """
    if content_type(request) != _JSON:
        raise RequestError(415, f"the content type is {content_type(request) or 'missing'}: expected {_JSON}")
    try:
        content = msgspec.json.decode(await request.body())
    except (ValueError, RecursionError) as error:  # ValueError: also invalid UTF-8
        raise RequestError(400, f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestError(400, "the body is not a JSON object: expected keys and values in { }")
    return content


async def read_fields(request: Request) -> dict[str, Any]:
    """The fields of a JSON object or of a form, and those of the address.

    :raises RequestError: the body is something else.
    """
    fields: dict[str, Any] = dict(request.query_params)
    if content_type(request) == _JSON:
        return fields | await read_json(request)
    body = await request.body()
    if body and content_type(request) != _FORM:
        raise RequestError(
            415, f"the content type is {content_type(request) or 'missing'}: expected {_JSON} or {_FORM}"
        )
    try:
        return fields | dict(
            parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=100)
        )
    except ValueError as error:  # also invalid UTF-8
        raise RequestError(400, f"the body is not a form in UTF-8: {error}") from None


def whole_number(request: Request, name: str, *, least: int) -> int | None:
    """A number in the request's address; None if it is not there.

    :raises RequestError: it is something else.
    """
    given = request.query_params.get(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) < 10) or int(given) < least:
        raise RequestError(400, f"{name} is {shown(given)}: expected a whole number, {least} or more")
    return int(given)


def typed(content: dict[str, Any], kind: type[T]) -> T:
    """The content of a request as a type.

    :raises RequestError: a value is wrong, or a key is unknown or missing.
    """
    try:
        return convert(content, kind)
    except ValueError as error:
        raise wrong_request(error) from None


def documented(kind: type | dict[str, Any]) -> dict[str, Any]:
    """Describes a request's content in OpenAPI, for a route's `openapi_extra`.

    :param kind: its type, or its JSON Schema.
    """
    schema = kind
    if not isinstance(kind, dict):
        (reference,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
        schema = parts[reference["$ref"]]
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema}}}}
