"""Separates the text of an HTML fragment from its tags, and puts translations in its place."""

from __future__ import annotations

import html
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import islice

from rskip.serving.sentences import SplitText

_NOT_TEXT = frozenset({"script", "style", "code", "pre", "kbd", "samp", "textarea", "svg", "math"})
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


class Fragment(HTMLParser):
    """An HTML fragment.

    sentences: those of its text between tags, without references such as `&amp;`. A sentence ends at each tag. Text in
        _NOT_TEXT or in an element with `translate="no"` is left out.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str | SplitText] = []
        self._kept: list[str] = []  # open elements whose text isn't translated, and those inside
        self.feed(source)
        self.close()

    @property
    def sentences(self) -> list[str]:
        return [sentence for part in self._parts if isinstance(part, SplitText) for sentence in part.sentences]

    def joined(self, translations: Sequence[str]) -> str:
        """The fragment with other sentences between the same tags and spaces."""
        others = iter(translations)
        return "".join(
            part if isinstance(part, str) else html.escape(part.joined([*islice(others, len(part.sentences))]), False)
            for part in self._parts
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._parts.append(self.get_starttag_text() or "")
        if tag not in _VOID and (self._kept or tag in _NOT_TEXT or ("translate", "no") in attrs):
            self._kept.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._parts.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self._parts.append(f"</{tag}>")
        if tag in self._kept:
            while self._kept.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._kept:
            raw = self._kept[-1] in self.CDATA_CONTENT_ELEMENTS
            self._parts.append(data if raw else html.escape(data, quote=False))
        else:
            self._parts.append(SplitText(data))

    def handle_comment(self, data: str) -> None:
        self._parts.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._parts.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self._parts.append(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self._parts.append(f"<![{data}]>")
