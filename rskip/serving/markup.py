"""Separates the text of an HTML fragment from its tags, and puts translations in its place.

Python's HTMLParser takes quadratic time for some fragments, which would stop the server. This takes linear time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import islice

from rskip.text.sentences import SplitText

_RAW = frozenset({"script", "style", "textarea", "title"})  # contain no tags
_NOT_TEXT = _RAW | {"code", "pre", "kbd", "samp", "svg", "math"}
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_LONGEST_TAG = 5000
_TAG = re.compile(r"""<[^"'>]*(?:(?:"[^"]*"|'[^']*')[^"'>]*)*>""")
_NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
_DIGITS = re.compile(r"(?<=&#)0*([0-9]{1,8})[0-9]*")  # Python refuses numbers of more than 4,300 digits
_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]*)))?""")
_SPACE = " \t\n\f\r"  # one or several are one space in HTML
_SPACES = re.compile(f"[{_SPACE}]+")


class Fragment:
    """An HTML fragment.

    sentences: those of its text between tags, without references such as `&amp;`. A sentence ends at each tag. Text in
        _NOT_TEXT or in an element with `translate="no"` is left out.
    """

    def __init__(self, source: str) -> None:
        self._parts: list[str | SplitText] = []
        kept, depth = "", 0  # the open element whose text isn't translated, and how many of its name are open in it
        start = 0  # of the text since the last tag
        lower = source.lower() if len(source.lower()) == len(source) else source
        while (tag := source.find("<", start)) >= 0 and (found := _next_tag(source, tag)) is not None:
            tag, end = found
            self._add_text(source[start:tag], translated=not kept)
            name, closing = _tag_name(source, tag), source.startswith("</", tag)
            opens = bool(name) and not closing and name not in _VOID and source[end - 2] != "/"
            if not kept and opens and (name in _NOT_TEXT or _is_kept(source[tag:end])):
                kept, depth = name, 1
                if name in _RAW:
                    close = lower.find(f"</{name}", end)
                    end = len(source) if close < 0 else close
            elif kept and name == kept:
                depth += 1 if opens else -1 if closing else 0
                kept = kept if depth else ""
            self._parts.append(source[tag:end])
            start = end
        self._add_text(source[start:], translated=not kept)

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

    def _add_text(self, text: str, *, translated: bool) -> None:
        if not translated:
            self._parts.append(text)
            return
        text = html.unescape(_DIGITS.sub(r"\1", text))
        begun = text.lstrip(_SPACE)
        inner = begun.rstrip(_SPACE)
        before, after = text[: len(text) - len(begun)], begun[len(inner) :]
        self._parts += [before, SplitText(_SPACES.sub(" ", inner)), after]


def _next_tag(source: str, start: int) -> tuple[int, int] | None:
    """Start and end of the first tag, comment or declaration from `start` on; None if there is none."""
    while start >= 0:
        if source.startswith("<!--", start):
            end = source.find("-->", start + 4)
            return start, len(source) if end < 0 else end + 3
        following = source[start + 1 : start + 2]
        if following in ("/", "!", "?") or (following.isascii() and following.isalpha()):
            if match := _TAG.match(source, start, start + _LONGEST_TAG):
                return start, match.end()
            end = source.find(">", start)
            return None if end < 0 else (start, end + 1)
        start = source.find("<", start + 1)
    return None


def _is_kept(tag: str) -> bool:
    """Whether a tag has the attribute `translate="no"`."""
    for match in _ATTRIBUTE.finditer(tag, 0, _LONGEST_TAG):
        if match[1].lower() == "translate":
            return (match[2] or match[3] or match[4] or "").lower() == "no"
    return False


def _tag_name(source: str, start: int) -> str:
    match = _NAME.match(source, start, start + _LONGEST_TAG)
    return match[1].lower() if match else ""
