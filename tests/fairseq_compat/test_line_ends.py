"""The rules for lines and for invalid text are the same for all readers and all parts of a file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairseq_compat.patches.line_ends import TextLines, find_offsets

LINES = [f"{number} wörd\r€\x0b\x1c\x85\u2028." for number in range(4)]


def test_any_number_of_workers_reads_each_line_once(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeff{}\n{}\r\n{}\n{}".format(*LINES).encode())
    for workers in range(1, 60):
        offsets = find_offsets(str(path), workers)
        assert len(offsets) == workers + 1 and offsets == sorted(offsets)
        read = []
        for start, end in pairwise(offsets):
            with TextLines(str(path), start, end) as lines:
                read += lines
        assert read == [*(f"{line}\n" for line in LINES[:3]), LINES[3]], workers


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Zwei Wörter.\n".encode("latin-1"), "bytes that are not UTF-8, up to byte 13: convert the text to UTF-8"),
        ("A dog.\n".encode("utf-16-le"), "UTF-16, up to byte 13: convert"),
        ("A dog.\n".encode("utf-16-be"), "UTF-16, up to byte 14"),
        ("A dog.\n".encode("utf-16"), "UTF-16, up to byte 15"),
        ("\u4f60\u597d\n\u4f60\n".encode("utf-16-le"), "UTF-16, up to byte 9"),
    ],
)
def test_what_is_not_utf8_text_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    with TextLines(str(tmp_path / "text")) as lines, pytest.raises(UnicodeError, match=message):
        list(lines)


def test_a_stray_nul_is_a_character(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"a b\nc d\n\0e f\n")
    with TextLines(str(tmp_path / "text")) as lines:
        assert list(lines) == ["a b\n", "c d\n", "\0e f\n"]


def test_fairseq_score_pairs_lines_with_a_carriage_return(fairseq_program: Any, tmp_path: Path) -> None:
    text = "a man{}sleeps on the road\nit rains in the old town\n"
    (tmp_path / "reference").write_bytes(text.format("\r").encode())
    done = fairseq_program("fairseq-score", "--ref", "reference", folder=tmp_path, text=text.format(" "))
    assert "BLEU4 = 100.00" in done.stdout, done.stderr
