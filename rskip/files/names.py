"""Makes file names safe to print: valid UTF-8, and without line breaks if they are part of a line."""

from __future__ import annotations

import json
import os
import re

_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\"")


def shown_name(name: str | os.PathLike[str]) -> str:
    """A file's name as text. Replaces bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "replace")


def line_name(name: str | os.PathLike[str]) -> str:
    """`shown_name` for use within a line: a JSON string if it has control characters or begins with a quote."""
    shown = shown_name(name)
    return json.dumps(shown) if _BREAKS.search(shown) else shown
