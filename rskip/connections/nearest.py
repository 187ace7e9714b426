"""The suggestion in an error about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str], *, before: str = "", after: str = "") -> str:
    """` (did you mean 'x'?)` with the known name nearest to `name`, or nothing where none is like it.

    `before` and `after` complete the suggestion, so that it is a whole spec.
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {before + matches[0] + after!r}?)" if matches else ""
