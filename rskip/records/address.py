"""The address of a run, `recipe/variant`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any


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
