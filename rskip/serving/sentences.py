"""Splits a text into its sentences, and joins their translations."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CLOSING = "\"'”’»)]"
_SPACES = re.compile(r"\s+|(?<=[。！？])(?=\S)")
_FINAL, _FINAL_WITHOUT_SPACE = (".", "!", "?", "…"), ("。", "！", "？")
# words before a full stop that rarely ends a sentence: titles, and abbreviations of some European languages
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'«“„])(?:\w|mr|mrs|ms|dr|prof|st|no|vs|e\.g|i\.e|z\.b|d\.h|u\.a|bzw|ca|nr|str|hr|fr|m|mme|mlle|sra?|"
    r"art|fig|vol|etc|usw|approx|inc|jr|sr|gen|col|sgt|capt|lt|hon|rev)\.$",
    re.IGNORECASE,
)


class SplitText:
    """A text in sentences.

    sentences: without the space around them; none of them is blank or has a line end inside.
    """

    def __init__(self, text: str) -> None:
        self.sentences: list[str] = []
        self._spaces = [""]  # before the first sentence, between two, and after the last one
        start = 0
        for match in _SPACES.finditer(text):
            if _ends_sentence(text, start, match):
                self._add(text[start : match.start()], match[0])
                start = match.end()
        self._add(text[start:], "")

    def _add(self, part: str, space: str) -> None:
        stripped = part.strip()
        before = part[: len(part) - len(part.lstrip())]
        self._spaces[-1] += before
        if stripped:
            self.sentences.append(stripped)
            self._spaces.append(part[len(before) + len(stripped) :] + space)
        else:
            self._spaces[-1] += space

    def joined(self, translations: Sequence[str]) -> str:
        """The text with other sentences between the same spaces."""
        parts = [part for pair in zip(self._spaces, translations, strict=False) for part in pair]
        return "".join([*parts, self._spaces[-1]])


def _ends_sentence(text: str, start: int, space: re.Match[str]) -> bool:
    """Whether a sentence that begins at `start` ends before this space: at a line end, or after final punctuation."""
    if any(each in _LINE_ENDS for each in space[0]):
        return True
    before = text[max(start, space.start() - 12) : space.start()]
    if before.endswith(_FINAL_WITHOUT_SPACE):
        return True
    if not before.rstrip(_CLOSING).endswith(_FINAL):
        return False
    following = text[space.end() : space.end() + 1]
    return not (following.islower() or following in ",;:" or _ABBREVIATION.search(before))
