"""Reading one sentence a line."""

import gzip
from pathlib import Path

import pytest

from rskip.corpora.sentences import read_pairs, read_sentences


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.en"
    path.write_bytes("one\u2028more\x0b \r\n\n über \nlast".encode())
    assert list(read_sentences(path)) == ["one\u2028more\x0b ", "", " über ", "last"]


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_bytes_that_are_not_utf8_are_named(tmp_path: Path, name: str) -> None:
    content = b"one\ntwo\nna\xefve\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(ValueError, match=rf"{name}: line 3 is not valid UTF-8 \(byte 0xef at position 3\)"):
        list(read_sentences(path))


def test_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "a.en.gz"
    whole = gzip.compress("".join(f"sentence {number * 7919}\n" for number in range(20_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"a\.en\.gz is damaged or cut short after line [1-9]\d+ \("):
        list(read_sentences(path))


@pytest.mark.parametrize("position", [0, 10, 40])
def test_damaged_gzip(tmp_path: Path, position: int) -> None:
    path = tmp_path / "a.en.gz"
    damaged = bytearray(gzip.compress(b"one two three four five six seven eight nine ten\n" * 30))
    damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.en\.gz is damaged or cut short after line \d+ \("):
        list(read_sentences(path))


def write_pair(tmp_path: Path, english: bytes, german: bytes) -> tuple[Path, Path]:
    paths = tmp_path / "a.en", tmp_path / "a.de"
    for path, content in zip(paths, (english, german), strict=True):
        path.write_bytes(content)
    return paths


def test_pairs(tmp_path: Path) -> None:
    paths = write_pair(tmp_path, b"one\n\n", b"eins\nzwei")
    assert list(read_pairs(*paths, sentences=2)) == [("one", "eins"), ("", "zwei")]


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
        list(read_pairs(*paths, sentences=2))
