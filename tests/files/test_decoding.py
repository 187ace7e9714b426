"""Every call that opens an image names the formats that it accepts."""

from __future__ import annotations

import ast
from pathlib import Path

import rskip


def test_pillow_is_told_the_formats_everywhere():
    """Without `formats` Pillow tries every format that it knows, and PostScript would start Ghostscript."""
    opened = {}
    for path in Path(rskip.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "Image.open" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Image.open", "PIL.Image.open"):
                opened[f"{path.name}:{node.lineno}"] = [keyword.arg for keyword in node.keywords]
    assert opened and all("formats" in keywords for keywords in opened.values()), opened
