"""Texts in the formats of their publishers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rskip.corpora.corpus import Format
from rskip.corpora.formats import TextFile, read_pairs, read_sentences


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a &amp; b &lt;c&gt; &quot;d&quot; &apos;e&apos;", "a & b <c> \"d\" 'e'"),
        ("&amp;quot; &amp;amp;", "&quot; &amp;"),
        ("caf&#233; caf&#xE9; &eacute;", "café café é"),
        ("R&D, AT&T; &copy 2014 &nosuch; a&b=1&", "R&D, AT&T; &copy 2014 &nosuch; a&b=1&"),
        ("1 < 2 <3 a<b> <br/> </i> c", "1 < 2 <3 a<b> <br/> </i> c"),
        ("<script> a &amp; b", "<script> a & b"),
        ("", ""),
        (" \t ", ""),
        ("one\ntwo\r\n  three\n", "one two three"),
        ("a\u2028b\u0085c\u00a0\u3000d\u000be", "a\u2028b\u0085c\u00a0\u3000d\u000be"),
        ("\u00a0a\u00a0", "\u00a0a\u00a0"),
        ("two  spaces", "two  spaces"),
        ("a <!-- no comment of ours --> b", "a  b"),
    ],
)
def test_segments(tmp_path: Path, written: str, read: str) -> None:
    path = write(tmp_path / "a.sgm", f'<refset><doc docid="1"><seg id="1">{written}</seg></doc></refset>')
    assert list(TextFile(path, "sgm").read()) == [read]


def test_ways_to_write_segments(tmp_path: Path) -> None:
    """Capitals, no quotes, spaces in tags, several in a line, an empty element, ids that begin again."""
    path = write(
        tmp_path / "a.sgm",
        "\ufeff<!DOCTYPE mteval SYSTEM 'a.dtd'>\r\n<DOC docid=a>\r\n<SEG ID=1>one</SEG><seg id='2' >two</seg >\r\n"
        '<seg\nid="3">three</seg></DOC>\n<doc docid="b">lost <seg id="1">four</seg> lost <seg id="2"/>\n</doc>',
    )
    assert list(TextFile(path, "sgm").read()) == ["one", "two", "three", "four", ""]


def test_talks(tmp_path: Path) -> None:
    """What fairseq's prepare-iwslt14.sh takes: all but the lines with url, keywords and talkid, tags removed."""
    path = write(
        tmp_path / "train.tags.de-en.en",
        "<url>http://www.ted.com/talks/a</url>\n<keywords>talks, dogs</keywords>\n<talkid>353</talkid>\n"
        "<title>A Speaker: Dogs</title>\n<description>TED Talk: A Speaker on dogs.</description>\n"
        "It can be a very complicated thing, the ocean.\n I mean: R&D <really> \n\n"
        '<doc docid="2" genre="lectures">\n<url>http://www.ted.com/talks/b</url>\n<speaker>B</speaker>\n'
        '<title>B: Men</title>\n<reviewer href="http://www.ted.com/profiles/1">C</reviewer>\n'
        '<translator href="http://www.ted.com/profiles/2">D</translator>\n<reviewer></reviewer>\n'
        "\u2028Thank you.\u0085\n</doc>",
    )
    assert list(TextFile(path, "ted").read()) == [
        "A Speaker: Dogs",
        "TED Talk: A Speaker on dogs.",
        "It can be a very complicated thing, the ocean.",
        "I mean: R&D <really>",
        "",
        "B: Men",
        "\u2028Thank you.\u0085",
    ]


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


@pytest.mark.parametrize("position", [0, 10, 40, None])
def test_damaged_gzip(tmp_path: Path, position: int | None) -> None:
    path = tmp_path / "a.en.gz"
    damaged = bytearray(gzip.compress("".join(f"sentence {number * 7919}\n" for number in range(20_000)).encode()))
    if position is None:
        del damaged[len(damaged) // 2 :]
    else:
        damaged[position] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"a\.en\.gz is damaged or truncated after line \d+"):
        list(read_sentences(path))


def test_pairs(tmp_path: Path) -> None:
    source, target = TextFile(tmp_path / "a.en"), TextFile(tmp_path / "a.de")

    def pairs(english: bytes, german: bytes) -> list[tuple[str, str]]:
        source.path.write_bytes(english)
        target.path.write_bytes(german)
        return list(read_pairs(source, target, sentences=2))

    assert pairs(b"one\n\n", b"eins\nzwei") == [("one", "eins"), ("", "zwei")]
    for english, german, message in (
        (b"one\ntwo\n", b"eins\n", r"a\.en has 2 lines and .*a\.de has 1: a text and its"),
        (b"one\n", b"eins\nzwei\n", r"a\.en has 1 lines and .*a\.de has 2"),
        (b"", b"eins\n", r"a\.en is empty: expected 2 sentences"),
        (b"one\n", b"", r"a\.de is empty: expected 2 sentences"),
        (b"", b"", r"a\.en is empty"),
        (b"one\n", b"eins\n", r"a\.en has 1 sentences: expected 2"),
    ):
        with pytest.raises(ValueError, match=message):
            pairs(english, german)


def test_errors_call_a_text_by_its_name(tmp_path: Path) -> None:
    """As of a member of an archive, whose unpacked file is gone when the error is read."""
    whole = TextFile(write(tmp_path / "whole", "eins\n"))
    contents: tuple[tuple[Format, bytes], ...] = (
        ("lines", b"na\xefve"),
        ("lines", b"one\ntwo\n"),
        ("lines", b""),
        ("lines", "one".encode("utf-16")),
        ("sgm", b"none"),
        ("ted", b"na\xefve"),
    )
    for text_format, content in contents:
        (tmp_path / "a").write_bytes(content)
        source = TextFile(tmp_path / "a", text_format, name="b.tgz, member a")
        with pytest.raises(ValueError, match=r"^b\.tgz, member a\b") as error:
            list(read_pairs(source, whole, sentences=1))
        assert str(tmp_path / "a") not in str(error.value)
