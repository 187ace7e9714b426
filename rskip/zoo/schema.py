"""checkpoints.schema.json, by which other programs check checkpoints.json: made from the types by `make schema`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from rskip.files.whole import atomic_file
from rskip.tasks import tasks
from rskip.zoo.registry import FORMAT, WEIGHTS, ModelEntry


def registry_schema() -> str:
    """The JSON Schema (2020-12) of checkpoints.json, with what the fields' `msgspec.Meta` say of them."""
    _, definitions = msgspec.json.schema_components([ModelEntry], ref_template="#/$defs/{name}")
    model = definitions["ModelEntry"]
    name = model["properties"].pop("name")
    model["required"].remove("name")
    for definition in definitions.values():
        definition["additionalProperties"] = False
    model["allOf"] = [  # a path that matches each of the task's patterns is among the files
        {
            "if": {"properties": {"task": {"const": task.name}}},
            "then": {"properties": {"files": {"allOf": [_has_key_like(pattern) for pattern in task.model_files]}}},
        }
        for task in tasks().values()
        if task.model_files
    ]
    model["properties"]["files"]["required"] = [WEIGHTS]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "checkpoints.json: the pretrained models of rskip",
        "type": "object",
        "required": ["format", "models"],
        "additionalProperties": False,
        "properties": {
            "format": {"const": FORMAT},
            "models": {
                "description": "ARCHITECTURE_CONNECTION.DATASET[.SOURCE-TARGET][.VARIANT] to the model of that name",
                "type": "object",
                "propertyNames": {"pattern": name["pattern"]},
                "additionalProperties": {"$ref": "#/$defs/ModelEntry"},
            },
        },
        "$defs": definitions,
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _has_key_like(pattern: str) -> dict[str, Any]:
    expression = re.escape(pattern).replace(r"\*", ".*")
    return {"not": {"propertyNames": {"not": {"pattern": f"^{expression}$"}}}}


if __name__ == "__main__":
    with atomic_file(Path("checkpoints.schema.json")) as temporary:
        temporary.write_text(registry_schema(), encoding="utf-8")
