"""Reads texts in their publishers' formats: one sentence per line, NIST's sgm and xml, IWSLT's tagged TED talks."""

from __future__ import annotations

import html.entities
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from typing import cast

from rskip.corpora.corpus import Format, Pair
from rskip.files.packed import open_unpacked
from rskip.files.text_lines import decoded_lines


@dataclass(frozen=True)
class TextFile:
    """A file of sentences, which may be compressed (`rskip.files.packed`).

    Formats:

    - "lines": one sentence per line.
    - "sgm" and "xml": the segments of a NIST test set (WMT's src.sgm and ref.sgm, IWSLT's dev and test sets), with
      entities unescaped.
    - "ted": IWSLT's train.tags files, read like fairseq's prepare-iwslt14.sh. A talk's title and description are
      sentences; other metadata is skipped.

    :param name: its name in error messages; empty: its path.
    """

    path: Path
    format: Format = "lines"
    name: str = ""

    def __str__(self) -> str:
        return self.name or str(self.path)

    def read(self) -> Iterator[str]:
        """The sentences in the order of the file.

        :raises ValueError: the file does not have its format. The error names file and line.
        """
        return _READERS[self.format](self)


def read_pairs(source: TextFile, target: TextFile, *, sentences: int | None) -> Iterator[Pair]:
    """Pairs of raw sentences from two texts with the same number of sentences.

    :param sentences: expected number of sentences; None: unknown.
    :raises ValueError: as `TextFile.read`; or a text is empty, or the numbers of sentences differ or are unexpected.
    """
    counts = [0, 0]
    for pair in zip_longest(source.read(), target.read()):
        if pair[0] is None or pair[1] is None:
            counts[pair[0] is None] += 1
            continue
        counts[0] += 1
        counts[1] += 1
        yield cast(Pair, pair)
    expected = "" if sentences is None else f": expected {sentences:,} sentences"
    if 0 in counts:
        raise ValueError(f"{(source, target)[counts.index(0)]} is empty{expected}")
    if counts[0] != counts[1]:
        raise ValueError(
            f"{source} has {counts[0]:,} lines and {target} has {counts[1]:,}: "
            "a text and its translation must have the same number"
        )
    if sentences is not None and counts[0] != sentences:
        raise ValueError(f"{source} has {counts[0]:,} sentences{expected.removesuffix(' sentences')}")


def read_sentences(path: Path, *, name: str = "") -> Iterator[str]:
    """The lines of a text file that may be compressed, without line ends and without a byte order mark.

    Only a line feed, or a carriage return and a line feed, ends a line. All other characters stay.

    :param name: the file's name in error messages; empty: its path.
    :raises ValueError: the text is not UTF-8, or a compressed file is damaged. The error names file and line.
    """
    name = name or str(path)
    number = 0
    with open_unpacked(path, name=name, place=lambda: f" after line {number}") as file:
        for line in decoded_lines(file, name):
            number += 1
            yield line


_TALK_DATA = re.compile(r"\s*</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b[^>]*>")
_TALK_SENTENCE_TAG = re.compile(r"</?(?:title|description)>")


def _read_lines(file: TextFile) -> Iterator[str]:
    return read_sentences(file.path, name=file.name)


def _read_talks(file: TextFile) -> Iterator[str]:
    for line in _read_lines(file):
        if not _TALK_DATA.match(line):
            yield _TALK_SENTENCE_TAG.sub("", line).strip(" \t")


def _read_segments(file: TextFile) -> Iterator[str]:
    parser = _SegmentParser()
    for line in _read_lines(file):
        parser.feed(_AMPERSAND.sub(_escape_lone_ampersand, line) + "\n")
        yield from parser.take()


_AMPERSAND = re.compile(r"&(?:#\d+;|#[xX][0-9a-fA-F]+;|([A-Za-z][A-Za-z0-9]*;))?")


def _escape_lone_ampersand(match: re.Match[str]) -> str:
    """Escapes an ampersand that does not begin an entity, since real files don't escape all of them."""
    named = match[1]
    lone = match[0] == "&" or (named is not None and named not in html.entities.html5)
    return "&amp;" + match[0][1:] if lone else match[0]


class _SegmentParser(HTMLParser):
    """Collects the text of <seg> elements.

    It is not an XML parser, because WMT's files are not well-formed XML. Unknown tags within a segment are part of its
    text. The callers compare the number of segments.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._found: list[str] = []
        self._text: list[str] | None = None  # of the segment in progress

    def take(self) -> list[str]:
        """The segments since the last call."""
        found, self._found = self._found, []
        return found

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "seg":
            self._text = []
        elif self._text is not None:
            self._text.append(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag == "seg":
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._text is None:
            return
        if tag == "seg":
            lines = (line.strip(" \t\r") for line in "".join(self._text).split("\n"))
            self._found.append(" ".join(line for line in lines if line))
            self._text = None
        else:
            self._text.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def set_cdata_mode(self, *args: object, **options: object) -> None:
        """Does nothing, so that HTML's elements of raw text, such as <script>, are parsed like others."""


_READERS: dict[Format, Callable[[TextFile], Iterator[str]]] = {
    "lines": _read_lines,
    "sgm": _read_segments,
    "xml": _read_segments,
    "ted": _read_talks,
}
