"""Reads the content of a request: JSON or a form."""

from __future__ import annotations

import codecs
import sys
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from rskip.extras import extra
from rskip.serving.errors import RequestError, wrong_request
from rskip.serving.service import aside
from rskip.settings.check import convert
from rskip.settings.errors import UNKNOWN, SettingError

with extra("serve", what="a server"):
    from fastapi import Request
    from starlette.exceptions import HTTPException

T = TypeVar("T", bound=msgspec.Struct)

_JSON, _FORM, _MULTIPART = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
_MOST_FIELDS = 100  # of a form


def content_type(request: Request) -> str:
    """The request's type of content, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body.

    :raises RequestError: the body is something else.
    """
    if content_type(request) != _JSON:
        raise RequestError(415, f"the content type is {content_type(request) or 'missing'}: expected {_JSON}")
    body = await _body(request)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:  # ValueError: also invalid UTF-8
        raise RequestError(400, f"the body is not JSON, or not an object in {{ }}: {error}") from None


async def read_fields(request: Request) -> dict[str, Any]:
    """The fields of a JSON object or of a form, and those of the address.

    :raises RequestError: the body is something else.
    """
    fields: dict[str, Any] = dict(request.query_params)
    if content_type(request) == _JSON:
        return fields | await read_json(request)
    if content_type(request) not in (_FORM, _MULTIPART) and await _body(request):
        expected = f"{_JSON}, {_FORM} or {_MULTIPART}"
        raise RequestError(415, f"the content type is {content_type(request) or 'missing'}: expected {expected}")
    try:  # the body has a limit already
        if content_type(request) == _MULTIPART:
            return fields | dict(await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=sys.maxsize))
        text = (await _body(request)).decode("utf-8")
        parse = partial(parse_qsl, text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
        return fields | dict(await aside(len(text), parse))
    except (HTTPException, ValueError) as error:  # also invalid UTF-8
        raise RequestError(400, f"the form can't be read: {getattr(error, 'detail', error)}") from None


async def _body(request: Request) -> bytes:
    body = await request.body()
    if body.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise RequestError(400, "the body begins with a byte order mark: expected UTF-8 without it")
    return body


def typed(content: dict[str, Any], kind: type[T]) -> T:
    """The content of a request as a type.

    :raises RequestError: a value is wrong, or a key is unknown or missing.
    """
    try:
        return convert(content, kind)
    except SettingError as error:
        if error.problem == UNKNOWN:
            error = SettingError.of_unknown_key("", error.name, kind.__struct_fields__, listed="GET /openapi.json")
        raise wrong_request(error) from None


def documented(kind: type, *, forms: bool = False) -> dict[str, Any]:
    """Describes a request's content in OpenAPI, for a route's `openapi_extra`.

    :param forms: whether the route also takes forms.
    """
    (reference,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    schema = parts[reference["$ref"]]
    types = (_JSON, _FORM, _MULTIPART) if forms else (_JSON,)
    return {"requestBody": {"required": True, "content": {each: {"schema": schema} for each in types}}}
