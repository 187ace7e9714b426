"""Splits a text into its sentences, and joins their translations."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CLOSING = "\"'”’»)]"
_SPACES = re.compile(r"\s+|(?<=[。！？])(?=\S)")
_LETTER = re.compile(r"[^\W\d_]")
_FINAL, _FINAL_WITHOUT_SPACE = (".", "!", "?", "…"), ("。", "！", "？")
# words before a full stop that rarely ends a sentence: titles, and abbreviations of some European languages
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'«“„])(?:\w|mr|mrs|ms|dr|prof|st|no|vs|e\.g|i\.e|z\.b|d\.h|u\.a|bzw|ca|nr|str|hr|fr|m|mme|mlle|sra?|"
    r"art|fig|vol|etc|usw|approx|inc|jr|sr|gen|col|sgt|capt|lt|hon|rev)\.$",
    re.IGNORECASE,
)


class SplitText:
    """A text in sentences.

    sentences: without the space around them; none of them has a line end inside. A part without a letter, such as
        12:30, counts as space, since a model would make words of it.
    """

    def __init__(self, text: str) -> None:
        self.sentences: list[str] = []
        self._spaces: list[list[str]] = [[]]  # in parts: before the first sentence, between two, and after the last one
        start = 0
        for match in _SPACES.finditer(text):
            if _ends_sentence(text, start, match):
                self._add(text[start : match.start()], match[0])
                start = match.end()
        self._add(text[start:], "")

    def _add(self, part: str, space: str) -> None:
        if not _LETTER.search(part):
            self._spaces[-1] += [part, space]
            return
        begun = part.lstrip()
        sentence = begun.rstrip()
        self._spaces[-1].append(part[: len(part) - len(begun)])
        self.sentences.append(sentence)
        self._spaces.append([begun[len(sentence) :], space])

    def joined(self, translations: Sequence[str]) -> str:
        """The text with other sentences between the same spaces."""
        pairs = zip(self._spaces, translations, strict=False)
        return "".join([*(part for space, sentence in pairs for part in (*space, sentence)), *self._spaces[-1]])


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
