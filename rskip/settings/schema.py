"""JSON Schemas of settings, for editors and other programs."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def json_schema(kind: type, *, title: str, description: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a Struct or dataclass, with what each field's `msgspec.Meta` says of it."""
    (reference,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        **reference,
        "$defs": definitions,
    }


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as the file that is committed holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
