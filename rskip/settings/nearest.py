"""The known name that a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: object, known: Iterable[str], *, count: int = 1) -> list[str]:
    """The known names that are most like `name`, the most alike first; none where none is alike."""
    return difflib.get_close_matches(str(name), list(known), n=count, cutoff=0.5)


def did_you_mean(name: object, known: Iterable[str], *, before: str = "", after: str = "") -> str:
    """` (did you mean 'x'?)` with the nearest known name, or nothing where none is alike.

    `before` and `after` complete the suggestion, so that it is a whole spec.
    """
    found = nearest(name, known)
    return f" (did you mean {before + found[0] + after!r}?)" if found else ""
