"""The registry of pretrained models, checkpoints.json: one entry a model.

The file lies in the root of the repository, and in the package where that is installed; checkpoints.schema.json
describes it for other programs. Reading it imports neither PyTorch nor any model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rskip.files.whole import atomic_file
from rskip.settings.check import convert
from rskip.settings.errors import SettingError, shown_key
from rskip.settings.schema import json_schema
from rskip.settings.text import read_json
from rskip.tasks import tasks
from rskip.zoo.entry import WEIGHTS, ModelEntry

FORMAT = 1
FILE_NAME = "checkpoints.json"


def registry_file() -> Path:
    """Where checkpoints.json lies: in the installed package, or in the root of the checkout.

    :raises FileNotFoundError: in neither.
    """
    package = Path(__file__).resolve().parents[1]
    for path in (package / FILE_NAME, package.parent / FILE_NAME):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{FILE_NAME} is neither in {package} nor beside it: install rskip again")


def read_registry(path: Path | None = None) -> dict[str, ModelEntry]:
    """Every model by its name, in the file's order. Default path: `registry_file()`.

    :raises FileNotFoundError: no such file.
    :raises SettingError: it is not JSON, of a format that a later rskip writes, or has a bad entry; one line that names
        the file, the model and the field.
    """
    path = registry_file() if path is None else path
    content = read_json(path)
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise SettingError("", "not a registry of models: it says no format", source=str(path))
    if content["format"] != FORMAT:
        raise SettingError(
            "",
            f"has format {content['format']}, but this rskip reads format {FORMAT}",
            advice="upgrade rskip (pip install --upgrade rskip)",
            source=str(path),
        )
    models = content.get("models")
    if content.keys() != {"format", "models"} or not isinstance(models, dict):
        keys, expected = ", ".join(map(shown_key, content)), "format and models, with one entry a model, and no others"
        raise SettingError("", f"has the keys {keys}", expected=expected, source=str(path))
    return {name: read_entry(name, values, source=path.name) for name, values in models.items()}


def read_entry(name: str, content: Any, *, source: str = FILE_NAME) -> ModelEntry:
    """One model's entry from plain values, as JSON has them.

    :param source: what begins each error, before the model's name.
    :raises SettingError: one line that names the model and the field.
    """
    source = f"{source}: {shown_key(name)}"
    if isinstance(content, dict):
        if "name" in content:
            raise SettingError("name", "is a key", expected="the model's name only before its entry", source=source)
        content = {"name": name, **content}
    return convert(content, ModelEntry, source=source)


def write_registry(path: Path, entries: Mapping[str, ModelEntry]) -> None:
    """Writes the models, sorted by name, whole or not at all; the same models give the same bytes."""
    content = {"format": FORMAT, "models": {name: entries[name].to_json() for name in sorted(entries)}}
    with atomic_file(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def registry_schema() -> dict[str, Any]:
    """The JSON Schema of checkpoints.json, from the types of an entry."""
    schema = json_schema(ModelEntry, title="checkpoints.json: the pretrained models of rskip", description="")
    model = schema["$defs"]["ModelEntry"]
    name = model["properties"].pop("name")
    model["required"].remove("name")
    for definition in schema["$defs"].values():
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
    return {
        "$schema": schema["$schema"],
        "title": schema["title"],
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
        "$defs": schema["$defs"],
    }


def _has_key_like(pattern: str) -> dict[str, Any]:
    expression = re.escape(pattern).replace(r"\*", ".*")
    return {"not": {"propertyNames": {"not": {"pattern": f"^{expression}$"}}}}
