"""Images are opened in the formats that are said, nowhere in any."""

from __future__ import annotations

import ast
from pathlib import Path

import rskip


def test_pillow_is_told_the_formats_everywhere():
    """Without them it tries all that it knows, of which PostScript starts Ghostscript."""
    opened = {}
    for path in Path(rskip.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open"):
                opened[f"{path.name}:{node.lineno}"] = [keyword.arg for keyword in node.keywords]
    assert opened and all("formats" in keywords for keywords in opened.values()), opened
