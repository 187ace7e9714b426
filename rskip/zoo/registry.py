"""The registry of pretrained models, checkpoints.json: one entry a model.

The file lies in the root of the repository, and in the package where that is installed; checkpoints.schema.json
describes it for other programs. Reading it imports neither PyTorch nor any model.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from rskip.files.whole import atomic_file
from rskip.settings.paper import Paper
from rskip.zoo.entry import Figure, ModelEntry, ModelFile

FORMAT = 1
FILE_NAME = "checkpoints.json"

Part = TypeVar("Part", ModelFile, Figure, Paper)


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
    :raises ValueError: it is not JSON, of a format that a later rskip writes, or has a bad entry; one line that names
        the file, the model and the field.
    """
    path = registry_file() if path is None else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a registry of models: {error}") from None
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise ValueError(f"{path}: not a registry of models: it says no format")
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {content['format']}, but this rskip reads format {FORMAT}: "
            "upgrade rskip (pip install --upgrade rskip)"
        )
    models = content.get("models")
    if content.keys() != {"format", "models"} or not isinstance(models, dict):
        raise ValueError(f"{path}: expected the keys format and models, with one entry a model, and no others")
    return {name: read_entry(name, values, source=path.name) for name, values in models.items()}


def read_entry(name: str, content: Any, *, source: str = FILE_NAME) -> ModelEntry:
    """One model's entry from plain values, as JSON has them.

    :param source: what begins each error, before the model's name.
    :raises ValueError: one line that names the model and the field.
    """
    place = f"{source}: {_on_one_line(name)}"
    values = _fields(ModelEntry, content, place, not_there=("name",))
    files = _mapping(values["files"], f"{place}: files")
    values["files"] = {
        path: _part(ModelFile, file, f"{place}: files: {_on_one_line(path)}") for path, file in files.items()
    }
    if isinstance(values["figures"], tuple):
        values["figures"] = tuple(
            _part(Figure, figure, f"{place}: figures: number {number}")
            for number, figure in enumerate(values["figures"], start=1)
        )
    values["paper"] = _part(Paper, values["paper"], f"{place}: paper")
    try:
        return ModelEntry(name=name, **values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def write_registry(path: Path, entries: Mapping[str, ModelEntry]) -> None:
    """Writes the models, sorted by name, whole or not at all; the same models give the same bytes."""
    content = {"format": FORMAT, "models": {name: entries[name].to_json() for name in sorted(entries)}}
    with atomic_file(path) as temporary:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _part(kind: type[Part], content: Any, place: str) -> Part:
    values = _fields(kind, content, place)
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _fields(kind: type, content: Any, place: str, *, not_there: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a dataclass from a JSON object, its lists as tuples; all must be there but those with a default."""
    content = _mapping(content, place)
    known = [each for each in dataclasses.fields(kind) if each.name not in not_there]
    for key in content:
        if key not in [each.name for each in known]:
            expected = ", ".join(each.name for each in known)
            raise ValueError(f"{place}: unknown key {_on_one_line(key)}: expected {expected}")
    for each in known:
        optional = each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        if each.name not in content and not optional:
            raise ValueError(f"{place}: {each.name} is missing")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def _mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{place}: expected keys and values")
    return value


def _on_one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"{_on_one_line(key)} is given twice: expected once")
        content[key] = value
    return content
