"""Single settings as users give them on a command line: `train.lr=0.003`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rskip.settings.errors import SettingError
from rskip.settings.text import parse_yaml


def parse_overrides(texts: Sequence[str], *, source: str = "--set") -> dict[str, Any]:
    """Texts `dotted.key=value`, the value in YAML, as keys and values; of a key that is given twice the last.

    :param source: what they are given with, for errors.
    :raises SettingError: a text without `=`, or whose value is not YAML.
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
    """Sets a dotted key in nested mappings, in place; returns the value before, None where there was none.

    :raises SettingError: a level of the key is one value, not a mapping.
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
