"""The variants of a recipe: each has a name, and changes some of the file's common content.

`variants` maps names to changes. A list of such mappings is a grid: every combination of their names is a variant.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from typing import Annotated, Any, NamedTuple

import msgspec

from rskip.settings.check import convert
from rskip.settings.errors import SettingError, did_you_mean

_LISTED = 10  # an error with a suggestion lists at most this many variants
_COMMON = ("kind", "results", "runs", "variants")  # the same for all variants of a file
_Name = Annotated[
    str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9_.-]*$", extra={"expected": "the name of a variant, such as 2rskip_ln"})
]
_Named = dict[_Name, dict[str, Any] | None]


class Variant(NamedTuple):
    """The changes of a variant, and the parts of its name, one from each mapping."""

    parts: tuple[str, ...]
    changes: dict[str, Any]


def read_variants(content: Mapping[str, Any]) -> dict[str, Variant]:
    """The variants in a recipe's content by name, in the order of the file; empty if it has none.

    :raises SettingError: an invalid name or change.
    """
    if "variants" not in content:
        return {}
    given = content["variants"]
    if isinstance(given, (list, dict)) and not (given and all(given)):
        raise SettingError("variants", "is empty", expected="one or more variants")
    if isinstance(given, list):
        return _combinations(convert(given, list[_Named], name="variants"))
    changes: dict[str, Any] = convert(given, _Named, name="variants")
    _check_changes("variants", changes)
    return {name: Variant((name,), change or {}) for name, change in changes.items()}


def choose_variants(patterns: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """The variants that match a name or shell pattern, in the file's order.

    :raises SettingError: a pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            near, listed = did_you_mean(pattern, known), ", ".join(known) or "none, the file is one run"
            if near and len(known) > _LISTED:
                listed = f"{len(known)}, which `rskip run RECIPE` lists"
            raise SettingError("", f"no variant {pattern}{near}; its variants: {listed}")
    return [name for name in known if any(fnmatchcase(name, pattern) for pattern in patterns)]


def merge(common: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the changes of a variant into the common content, also within nested mappings."""
    merged = copy.deepcopy(dict(common))
    for key, value in changes.items():
        before = merged.get(key)
        merged[key] = merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def _combinations(grid: list[dict[str, Any]]) -> dict[str, Variant]:
    """All combinations of one variant per mapping. The first mapping varies slowest; later changes win."""
    for number, changes in enumerate(grid):
        _check_changes(f"variants[{number}]", changes)
    variants: dict[str, Variant] = {}
    for parts in itertools.product(*grid):
        name = "_".join(parts)
        if name in variants:
            raise SettingError("variants", f"has two combinations with the name {name}", advice="rename a part of one")
        chosen = [changes[part] or {} for part, changes in zip(parts, grid, strict=True)]
        variants[name] = Variant(parts, reduce(merge, chosen))
    return variants


def _check_changes(where: str, variants: Mapping[str, Any]) -> None:
    for name, changes in variants.items():
        for key in _COMMON:
            if key in (changes or {}):
                raise SettingError(f"{where}.{name}.{key}", "can't be changed by a variant")
