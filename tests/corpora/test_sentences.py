"""Reading one sentence a line."""

import gzip
from pathlib import Path

import pytest

from rskip.corpora.sentences import read_sentences


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


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf", [""]),
        (b"one\r\ntwo\rthree\r\r\nfour\r", ["one", "two\rthree", "four"]),
        ("a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"]),
        (b"one\0two\nthree\0\n", ["one\0two", "three\0"]),
        (b"", []),
        (b"\n", [""]),
        (b"no line feed at the end", ["no line feed at the end"]),
    ],
)
def test_odd_input(tmp_path: Path, content: bytes, sentences: list[str]) -> None:
    (tmp_path / "a.en").write_bytes(content)
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(content))
    assert list(read_sentences(tmp_path / "a.en")) == list(read_sentences(tmp_path / "a.en.gz")) == sentences


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_named(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.en").write_bytes("one\ntwo\n".encode(encoding))
    with pytest.raises(ValueError, match=r"a\.en is UTF-16: convert the file to UTF-8, by iconv"):
        list(read_sentences(tmp_path / "a.en"))


@pytest.mark.parametrize(
    ("name", "count"),
    [("subset30k.en", 30_000), ("subset30k.vi", 30_000), ("tst2012.en", 1_553), ("subset30k-tst2013.vi", 1_268)],
)
def test_real_files(shared: Path, name: str, count: int) -> None:
    """Some of them lack the last line feed, some have carriage returns."""
    content = gzip.decompress((shared / f"data/iwslt15-en-vi/{name}.gz").read_bytes()).decode()
    sentences = list(read_sentences(shared / f"data/iwslt15-en-vi/{name}.gz"))
    assert "\n".join(sentences) == content.replace("\r\n", "\n").removesuffix("\n")
    assert len(sentences) == count


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
