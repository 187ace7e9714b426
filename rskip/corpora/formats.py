"""Reads texts in their publishers' formats: one sentence per line, NIST's sgm and xml, IWSLT's tagged TED talks."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.entities import html5
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
    """The text of <seg> elements. This is not an XML parser, because WMT's files are not well-formed XML."""
    for segment in _SEGMENT.finditer(_COMMENT.sub("", "\n".join(_read_lines(file)))):
        lines = _ENTITY.sub(_character, segment[1] or "").split("\n")
        yield " ".join(text for line in lines if (text := line.strip(" \t\r")))


_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_SEGMENT = re.compile(r"<seg\b[^>]*?(?:/>|>(.*?)</seg\s*>)", re.DOTALL | re.IGNORECASE)
_ENTITY = re.compile(r"&(#\d+;|#[xX][0-9a-fA-F]+;|[A-Za-z][A-Za-z0-9]*;)")  # real files don't escape all ampersands


def _character(entity: re.Match[str]) -> str:
    return html.unescape(entity[0]) if entity[1][0] == "#" or entity[1] in html5 else entity[0]


_READERS: dict[Format, Callable[[TextFile], Iterator[str]]] = {
    "lines": _read_lines,
    "sgm": _read_segments,
    "xml": _read_segments,
    "ted": _read_talks,
}
