"""YAML whose every key and value is checked. A place, such as "corpora.yaml: wmt14-en-de", begins each error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast, where PyYAML was built with it


def load_yaml(path: Path) -> Any:
    """The file's content as plain Python values; None where it is empty.

    :raises ValueError: it is not YAML, or a key is given twice; names the line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            node = yaml.compose(file, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{path.name}: {line}not valid YAML: {getattr(error, 'problem', error)}") from None
    if node is None:
        return None
    _refuse_repeated_keys(node, path.name)
    return yaml.SafeLoader("").construct_document(node)


def _refuse_repeated_keys(node: yaml.Node, place: str) -> None:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                raise ValueError(
                    f"{place}: line {key.start_mark.line + 1}: key {key.value} is given twice: expected once"
                )
            seen.add(key.value)
            _refuse_repeated_keys(value, place)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, place)


def as_mapping(value: Any, place: str) -> dict[str, Any]:
    """:raises ValueError: the value is not a mapping whose keys are text."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{place}: expected keys and values")
    return value


def as_record(value: Any, place: str, *, required: Sequence[str] = (), optional: Sequence[str] = ()) -> dict[str, Any]:
    """:raises ValueError: the value is not a mapping, lacks a required key, or has one that is not named here."""
    values = as_mapping(value, place)
    for key in values:
        if key not in (*required, *optional):
            raise ValueError(f"{place}: unknown key {key}: expected {', '.join((*required, *optional))}")
    for key in required:
        if key not in values:
            raise ValueError(f"{place}: {key} is missing")
    return values


def as_list(value: Any, place: str) -> list[Any]:
    """:raises ValueError: the value is not a list, or an empty one."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{place}: expected a list of one item or more")
    return value


def as_text(value: Any, place: str) -> str:
    """:raises ValueError: the value is not text, or it is empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{place}: expected text")
    return value


def count_of(values: Mapping[str, Any], key: str, place: str) -> int | None:
    """The whole number called `key`; None where there is none.

    :raises ValueError: it is something else, or less than 1.
    """
    value = values.get(key)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{place}: {key} is {value!r}: expected a whole number of 1 or more")
    return value

