"""The address of a run, `recipe/variant`, and the one rule for the name that it had before, `recipe_variant`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rskip.settings.errors import SettingError


def run_address(recipe: str, variant: str | None, overrides: Mapping[str, Any] | None = None) -> str:
    """`recipe/variant`, or `recipe` of a recipe without variants, and a hash of the overrides if there are any.

    It names the run's folder in runs/, results/ and checkpoints/.
    """
    address = recipe if variant is None else f"{recipe}/{variant}"
    if not overrides:
        return address
    canonical = json.dumps(dict(overrides), sort_keys=True, separators=(",", ":"))
    return f"{address}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"


def without_hash(run: str) -> str:
    """The address of what was run, without the hash of overrides."""
    return re.sub(r"-[0-9a-f]{8}$", "", run)


def old_name(address: str) -> str:
    """The name of a run before it had an address."""
    return address.replace("/", "_")


def run_path(folder: Path, run: str, name: str) -> Path:
    """`folder/run/name`; where only the run's old name has it, that."""
    path, old = folder / run / name, folder / old_name(run) / name
    return old if old.exists() and not path.exists() else path


def new_addresses(names: Iterable[str], addresses: Iterable[str]) -> dict[str, str]:
    """What old names among `names` stand for; other names, and those that are an address, are left out.

    :param addresses: of all recipes.
    :raises SettingError: an old name stands for two addresses.
    """
    known, wanted = set(addresses), set(names)
    found: dict[str, str] = {}
    for address in sorted(known):
        name = old_name(address)
        if name in wanted - known:
            if name in found:
                expected = f"{found[name]} or {address}"
                raise SettingError("", f"the run {name} has two addresses by now", expected=expected)
            found[name] = address
    return found
