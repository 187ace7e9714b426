"""Two texts side by side."""

from pathlib import Path

import pytest

from rskip.corpora.text_pairs import read_pairs


def write_pair(tmp_path: Path, english: bytes, german: bytes) -> tuple[Path, Path]:
    paths = tmp_path / "a.en", tmp_path / "a.de"
    for path, content in zip(paths, (english, german), strict=True):
        path.write_bytes(content)
    return paths


def test_pairs(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, b"one\n\n", b"eins\nzwei")
    assert list(read_pairs(*((path, "lines") for path in paths), sentences=2)) == [("one", "eins"), ("", "zwei")]


@pytest.mark.parametrize(
    ("english", "german", "message"),
    [
        (b"one\ntwo\n", b"eins\n", r"a\.en has 2 lines and .*a\.de has 1: files that translate"),
        (b"one\n", b"eins\nzwei\n", r"a\.en has 1 lines and .*a\.de has 2"),
        (b"", b"eins\n", r"a\.en is empty: expected 2 sentences"),
        (b"one\n", b"", r"a\.de is empty: expected 2 sentences"),
        (b"", b"", r"a\.en is empty"),
        (b"one\n", b"eins\n", r"a\.en has 1 sentences: expected 2"),
    ],
)
def test_pairs_that_do_not_match(tmp_path: Path, english: bytes, german: bytes, message: str) -> None:
    paths = write_pair(tmp_path, english, german)
    with pytest.raises(ValueError, match=message):
        list(read_pairs(*((path, "lines") for path in paths), sentences=2))
