"""Tests what ends a line of text, and what is refused as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.files.text_lines import read_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\r\nb\nc", ["a", "b", "c"]),
        ("a\rb\n\x0bc\x0c\x1c\x1d\x1e\x85\u2028\u2029d\n", ["a\rb", "\x0bc\x0c\x1c\x1d\x1e\x85\u2028\u2029d"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        ("a\r\r", ["a"]),
        ("a\nb\rc", ["a", "b\rc"]),
        ("ab\0c\r\r\nd\0\n\0e\n", ["ab\0c", "d\0", "\0e"]),
    ],
)
def test_only_a_line_feed_ends_a_line(content: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content.encode())
    assert list(read_lines(tmp_path / "text")) == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xff\n", r"text: line 2 is not valid UTF-8 \(byte 0xff at position 2\): convert the text to UTF-8"),
        (b"a\rb", r"text: its lines end with carriage returns only: convert them to line feeds \(tr '\\r' '\\n'\)$"),
        ("a\nb\n".encode("utf-16"), "text: line 1 is UTF-16: convert the text to UTF-8"),
        ("a\nb\n".encode("utf-16-le"), "text: line 1 is UTF-16"),
        ("a\nb\n".encode("utf-16-be"), "text: line 1 is UTF-16"),
        ("\u4f60\n\u597d\n".encode("utf-16-le"), "text: line 2 is UTF-16"),
        ("\u4f60\n\u597d\n".encode("utf-16-be"), "text: line 1 is UTF-16"),
    ],
)
def test_what_is_not_text_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_lines(tmp_path / "text"))
