"""Reads the content of a request: JSON, a form, or an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from rskip.machine.extras import extra
from rskip.serving.errors import RequestError, wrong_request
from rskip.serving.forms import MOST_FIELDS, MULTIPART, Part, parse_multipart
from rskip.settings.check import convert
from rskip.settings.errors import UNKNOWN, SettingError, shown

with extra("serve", what="a server"):
    from fastapi import Request
    from starlette.concurrency import run_in_threadpool

T = TypeVar("T", bound=msgspec.Struct)

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
    if not (body := await request.body()):
        raise RequestError(400, "the body is empty: expected a JSON object")
    try:
        content = msgspec.json.decode(body)
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
    if content_type(request) == MULTIPART:
        try:
            return fields | {part.name: part.text for part in await _parts(request)}
        except ValueError as error:
            raise _damaged(error) from None
    body = await request.body()
    if body and content_type(request) != _FORM:
        expected = f"{_JSON}, {_FORM} or {MULTIPART}"
        raise RequestError(415, f"the content type is {content_type(request) or 'missing'}: expected {expected}")
    try:
        return fields | dict(
            parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        )
    except ValueError as error:  # also invalid UTF-8
        raise _damaged(error) from None


async def read_upload(request: Request) -> tuple[dict[str, str], bytes]:
    """The fields of the address or the form, and the bytes of an image file: the body, or the form's file.

    :raises RequestError: the body is something else.
    """
    fields, kind = dict(request.query_params), content_type(request)
    if kind == MULTIPART:
        try:
            parts = await _parts(request)
            fields |= {part.name: part.text for part in parts if not part.is_file}
        except ValueError as error:
            raise _damaged(error) from None
        files = [bytes(part.content) for part in parts if part.is_file]
        if len(files) != 1:
            raise RequestError(400, f"the form has {len(files)} files: expected one, an image")
        return fields, files[0]
    if not (kind.startswith("image/") or kind == "application/octet-stream"):
        expected = f"that of an image, such as image/jpeg, or {MULTIPART}"
        raise RequestError(415, f"the content type is {kind or 'missing'}: expected {expected}")
    return fields, await request.body()


async def _parts(request: Request) -> list[Part]:
    return await run_in_threadpool(parse_multipart, request.headers["content-type"], await request.body())


def _damaged(error: ValueError) -> RequestError:
    return RequestError(400, f"the form can't be read: {error}")


def whole_number(fields: Mapping[str, str], name: str, *, least: int) -> int | None:
    """A number in a request's fields; None if it is not there.

    :raises RequestError: it is something else.
    """
    given = fields.get(name)
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
    except SettingError as error:
        if error.problem == UNKNOWN:
            known = [field.encode_name for field in msgspec.structs.fields(kind)]
            error = SettingError.of_unknown_key("", error.name, known, listed="GET /openapi.json")
        raise wrong_request(error) from None


def documented(kind: type | dict[str, Any], *, forms: bool = False) -> dict[str, Any]:
    """Describes a request's content in OpenAPI, for a route's `openapi_extra`.

    :param kind: its type, or its JSON Schema.
    :param forms: whether the route also takes forms.
    """
    schema = kind
    if not isinstance(kind, dict):
        (reference,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
        schema = parts[reference["$ref"]]
    types = (_JSON, _FORM, MULTIPART) if forms else (_JSON,)
    return {"requestBody": {"required": True, "content": {each: {"schema": schema} for each in types}}}


def parameters(*names: str) -> dict[str, Any]:
    """Describes parameters in a request's address in OpenAPI: `model` is a name, the others are whole numbers."""
    kinds = {name: {"type": "string"} if name == "model" else {"type": "integer", "minimum": 1} for name in names}
    return {"parameters": [{"name": name, "in": "query", "schema": kind} for name, kind in kinds.items()]}
