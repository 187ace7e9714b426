"""File names in text, which holds neither bytes that are not UTF-8 nor, in lines, line breaks."""

from __future__ import annotations

import json
import os
import re

_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\"")


def shown_name(name: str | os.PathLike[str]) -> str:
    """A file's name as text, with a replacement for what is not UTF-8 in it."""
    return os.fsencode(name).decode("utf-8", "replace")


def line_name(name: str | os.PathLike[str]) -> str:
    """`shown_name` as a part of a line: where it has control characters or begins with a quote, as a JSON string."""
    shown = shown_name(name)
    return json.dumps(shown) if _BREAKS.search(shown) else shown
