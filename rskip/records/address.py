"""The address of a run, `recipe/variant`, and the rule for its old name, `recipe_variant`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rskip.settings.errors import SettingError


def run_address(recipe: str, variant: str | None, overrides: Mapping[str, Any] | None = None) -> str:
    """`recipe/variant`, or `recipe` if the recipe has no variants, and a hash of the overrides if there are any.

    It is also the path of the run's folder in runs/, results/ and checkpoints/.
    """
    address = recipe if variant is None else f"{recipe}/{variant}"
    if not overrides:
        return address
    canonical = json.dumps(dict(overrides), sort_keys=True, separators=(",", ":"))
    return f"{address}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"


def without_hash(run: str) -> str:
    """A run's address without the hash of overrides."""
    return re.sub(r"-[0-9a-f]{8}$", "", run)


def old_name(address: str) -> str:
    """The name that a run with this address had in earlier versions."""
    return address.replace("/", "_")


def run_path(folder: Path, run: str, name: str) -> Path:
    """`folder/run/name`, or the path under the run's old name if only that exists."""
    path, old = folder / run / name, folder / old_name(run) / name
    return old if old.exists() and not path.exists() else path


def new_addresses(names: Iterable[str], addresses: Iterable[str]) -> dict[str, str]:
    """Maps the old names among `names` to addresses. Omits unknown names and names that are addresses.

    :param addresses: those of all recipes.
    :raises SettingError: an old name stands for two addresses.
    """
    known, wanted = set(addresses), set(names)
    found: dict[str, str] = {}
    for address in sorted(known):
        name = old_name(address)
        if name in wanted - known:
            if name in found:
                expected = f"{found[name]} or {address}"
                raise SettingError("", f"the run {name} has two addresses", expected=expected)
            found[name] = address
    return found
