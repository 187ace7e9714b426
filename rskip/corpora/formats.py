"""Texts as their publishers write them: one sentence a line, NIST's sgm and xml, and IWSLT's tagged TED talks."""

from __future__ import annotations

import html.entities
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from rskip.corpora.sentences import read_sentences


def read_text(path: Path, format: str) -> Iterator[str]:
    """The sentences of a text file, or of one packed by gzip (`.gz`), in the file's order.

    Formats: "lines", a sentence a line. "sgm" and "xml", the segments of a NIST test set (WMT's src.sgm and ref.sgm,
    IWSLT's dev and test sets), entities unescaped. "ted", IWSLT's train.tags files as fairseq's prepare-iwslt14.sh
    takes them: a talk's title and description are sentences, everything else about it is left out.

    :param format: one of `FORMATS`.
    :raises ValueError: an unknown format, or a file that isn't in it; names the file and the line.
    """
    if format not in _READERS:
        raise ValueError(f"unknown text format {format!r}: expected one of {', '.join(FORMATS)}")
    return _READERS[format](path)


_TALK_DATA = re.compile(r"\s*</?(url|talkid|keywords|speaker|reviewer|translator|doc)\b[^>]*>")
_TALK_SENTENCE_TAG = re.compile(r"</?(?:title|description)>")


def _read_talks(path: Path) -> Iterator[str]:
    for line in read_sentences(path):
        if not _TALK_DATA.match(line):
            yield _TALK_SENTENCE_TAG.sub("", line).strip(" \t")


def _read_segments(path: Path) -> Iterator[str]:
    parser = _SegmentParser(path)
    for line in read_sentences(path):
        parser.feed(_AMPERSAND.sub(_escape_lone_ampersand, line) + "\n")
        yield from parser.take()
    parser.close()
    yield from parser.take()
    parser.finish()


_AMPERSAND = re.compile(r"&(?:#\d+;|#[xX][0-9a-fA-F]+;|([A-Za-z][A-Za-z0-9]*;))?")


def _escape_lone_ampersand(match: re.Match[str]) -> str:
    """An ampersand that begins no entity stands for itself: real files don't escape all of theirs."""
    named = match[1]
    lone = match[0] == "&" or (named is not None and named not in html.entities.html5)
    return "&amp;" + match[0][1:] if lone else match[0]


class _SegmentParser(HTMLParser):
    """Collects the text of <seg> elements.

    Not an XML parser, because WMT's files are not well-formed XML. Tags within a segment that don't belong to the
    format are its text.
    """

    STRUCTURE = frozenset({"mteval", "srcset", "refset", "tstset", "doc", "hl", "p"})

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self._path = path
        self._found: list[str] = []
        self._segments = 0
        self._documents = 0
        self._document = ""
        self._document_line = 0  # 0: not in one
        self._names: set[tuple[str, str]] = set()
        self._text: list[str] | None = None
        self._segment_line = 0

    def take(self) -> list[str]:
        """The segments that were found since the last call."""
        found, self._found = self._found, []
        return found

    def finish(self) -> None:
        """:raises ValueError: the file has ended before its last segment or document did, or it had no segment."""
        if self._text is not None:
            raise self._never_ended()
        if self._document_line:
            raise ValueError(
                f"{self._path} ends within the document that begins in line {self._document_line} (no </doc>): "
                "it is cut short, fetch the whole file again"
            )
        if not self._segments:
            raise ValueError(f"{self._path} has no segment (<seg id=...>): expected a NIST test set, sgm or xml")

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if self._text is not None:
            if tag == "seg" or tag in self.STRUCTURE:
                raise self._never_ended()
            self._text.append(self.get_starttag_text() or "")
        elif tag == "seg":
            self._begin_segment((dict(attributes).get("id") or "").strip())
        elif tag == "doc":
            self._documents += 1
            self._document = dict(attributes).get("docid") or f"number {self._documents}"
            self._document_line = self.getpos()[0]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag == "seg":
            self._end_segment()

    def handle_endtag(self, tag: str) -> None:
        if tag == "seg" and self._text is not None:
            self._end_segment()
        elif self._text is not None:
            if tag in self.STRUCTURE:
                raise self._never_ended()
            self._text.append(f"</{tag}>")
        elif tag == "doc":
            self._document_line = 0

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def set_cdata_mode(self, *args: object, **options: object) -> None:
        """HTML's elements of raw text, such as <script>, are nothing special here."""

    def _begin_segment(self, name: str) -> None:
        self._segment_line = self.getpos()[0]
        if not name:
            raise ValueError(f"{self._path}: line {self._segment_line}: a segment without id: expected <seg id=...>")
        if (self._document, name) in self._names:
            raise ValueError(
                f"{self._path}: line {self._segment_line}: segment {name} of document {self._document} comes a second "
                "time: expected each once, in files of one reference"
            )
        self._names.add((self._document, name))
        self._text = []

    def _end_segment(self) -> None:
        assert self._text is not None
        lines = (line.strip(" \t\r") for line in "".join(self._text).split("\n"))
        self._found.append(" ".join(line for line in lines if line))
        self._segments += 1
        self._text = None

    def _never_ended(self) -> ValueError:
        return ValueError(
            f"{self._path}: line {self._segment_line}: a segment that never ends (no </seg>): "
            "the file is damaged, fetch the whole file again"
        )


_READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    "lines": read_sentences,
    "sgm": _read_segments,
    "xml": _read_segments,
    "ted": _read_talks,
}
FORMATS = tuple(_READERS)
