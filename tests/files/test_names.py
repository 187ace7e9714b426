"""A file name stays within one line, whatever characters it contains."""

from __future__ import annotations

import json
import os

import pytest

from rskip.files.names import line_name, shown_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a b.jpg", "a b.jpg"),
        ("ä\\n\u3000.jpg", "ä\\n\u3000.jpg"),
        ("a\nb\t.jpg", r'"a\nb\t.jpg"'),
        ("é\x85\u2028.jpg", r'"\u00e9\u0085\u2028.jpg"'),
        ('"a".jpg', r'"\"a\".jpg"'),
        (os.fsdecode(b"\xff.jpg"), "\ufffd.jpg"),
        (os.fsdecode(b"\xff\n"), r'"\ufffd\n"'),
    ],
)
def test_a_name_with_control_characters_is_a_json_string(name, shown):
    assert line_name(name) == shown and len(shown.splitlines()) == 1
    if shown.startswith('"'):
        assert json.loads(shown) == shown_name(name)
