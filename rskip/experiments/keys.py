"""Unknown keys are errors that name the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def refuse_unknown_keys(given: Iterable[object], known: Iterable[str], *, within: str = "") -> None:
    """Raises ValueError on the first of `given` that is not in `known`; `within` is the mapping's name."""
    known = list(known)
    for key in given:
        if key not in known:
            full_name = f"{within}.{key}" if within else str(key)
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"
            raise ValueError(f"unknown key {full_name}; {hint}")
