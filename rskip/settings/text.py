"""Reads YAML, JSON and `key=value` as plain values. `5e-3` is a number, and a repeated key is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rskip.extras import extra
from rskip.settings.errors import SettingError, shown_key

MAX_DEPTH = 100

# In YAML 1.1, which PyYAML implements, 5e-3 (without a point) is text. In YAML 1.2 it is a number.
_FLOAT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")


@cache
def _loader() -> Any:
    """PyYAML's safe loader with these two rules. JSON is read without PyYAML."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C loader: five times as fast
        pass

    def mapping_without_repeated_keys(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = loader.construct_object(key_node, deep=True)
            problem = ""
            if isinstance(key, (list, dict)):
                problem = "a key is a list or a mapping: expected a name"
            elif key in seen:
                problem = f"key {shown_key(key)} is given twice: expected once"
            if problem:
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return loader.construct_mapping(node, deep=True)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789"))
    Loader.add_constructor("tag:yaml.org,2002:map", mapping_without_repeated_keys)
    return Loader


def read_yaml(path: Path) -> Any:
    """Reads the content of a YAML file as plain values.

    :raises SettingError: the content is not YAML, or a key is given twice. Names the file and the line.
    """
    return parse_yaml(read_text(path), source=str(path))


def parse_yaml(text: str, *, source: str) -> Any:
    """The text's content as plain values.

    :param source: names the text in errors.
    :raises SettingError: as `read_yaml`.
    """
    with extra("translation", "vision", "captioning", what="YAML"):
        import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {min(mark.line + 1, len(text.splitlines()) or 1)}" if mark else ""  # never after the last line
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise SettingError("", f"not valid YAML: {problem}", source=f"{source}{line}") from None
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # from PyYAML: a value doesn't fit its tag
        raise SettingError("", f"not valid YAML: {error}", source=source) from None


def read_json(path: Path) -> Any:
    """Reads the content of a JSON file as plain values.

    :raises SettingError: the content is not JSON, or a key is given twice. Names the file.
    """
    return parse_json(read_text(path), source=str(path))


def parse_json(text: str, *, source: str) -> Any:
    """The text's content as plain values.

    :param source: names the text in errors.
    :raises SettingError: as `read_json`.
    """
    try:
        content = json.loads(text, object_pairs_hook=_object_without_repeated_keys)
    except ValueError as error:
        raise SettingError("", f"not valid JSON: {error}", source=source) from None
    except RecursionError:
        raise _nested(source) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(content) > MAX_DEPTH:
        raise _nested(source)
    return content


def _nested(source: str) -> SettingError:
    return SettingError("", f"nested more than {MAX_DEPTH} levels deep", source=source)


def _depth(content: Any) -> int:
    """The number of levels of nested lists and mappings."""
    level, depth = [content], 0
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return depth


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"key {shown_key(key)} is given twice: expected once")
        content[key] = value
    return content


def parse_overrides(texts: Sequence[str], *, source: str = "override") -> dict[str, Any]:
    """Parses texts `dotted.key=value`, with values in YAML. The last value of a repeated key counts.

    :param source: the flag that they were given with, for errors.
    :raises SettingError: a text has no `=`, or its value is not YAML.
    """
    overrides = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not all(key.split(".")):
            expected = "key=value with a dotted key, such as train.lr=0.003"
            raise SettingError("", "", expected=expected, source=f"{source} {text}")
        overrides[key] = parse_yaml(value, source=f"{source} {text}")
    return overrides


def set_dotted(content: dict[str, Any], key: str, value: Any) -> Any:
    """Sets a dotted key in nested mappings in place. Returns the former value, or None if there was none.

    :raises SettingError: a level of the key is a single value, not a mapping.
    """
    *parents, last = key.split(".")
    inner = content
    for parent in parents:
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SettingError(key, f"can't be set: {parent} is one value, not a mapping")
    before = inner.get(last)
    inner[last] = value
    return before


def read_text(path: Path) -> str:
    """Reads the text of a file, without its byte order mark. Raises `SettingError` if the file is not UTF-8."""
    return decoded(path.read_bytes(), source=str(path)).replace("\r\n", "\n").replace("\r", "\n")


def decoded(content: bytes, *, source: str) -> str:
    """Decodes UTF-8 and drops a byte order mark. Raises `SettingError` if the content is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingError("", f"not valid UTF-8 (byte {error.start})", source=source) from None
