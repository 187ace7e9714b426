"""Splits a text into its sentences, and puts their translations in their places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category

LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CLOSING = "\"'”’»)]"
_EMOJI_PARTS = "\u200d\ufe0e\ufe0f\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
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

    sentences: without the space and the emoji around them; none of them has a line end inside. A part without a letter,
        such as 12:30, counts as space, since a model would make words of it.
    gaps: the space before the first sentence, between two, and after the last one.
    """

    def __init__(self, text: str) -> None:
        self.sentences: list[str] = []
        self.gaps = [""]
        start = 0
        for match in _SPACES.finditer(text):
            if _ends_sentence(text, start, match):
                self._add(text[start : match.start()], match[0])
                start = match.end()
        self._add(text[start:], "")

    def _add(self, part: str, space: str) -> None:
        if not _LETTER.search(part):
            self.gaps[-1] += part + space
            return
        start, end = 0, len(part)
        while _is_outside(part[start]):
            start += 1
        while _is_outside(part[end - 1]):
            end -= 1
        self.gaps[-1] += part[:start]
        self.sentences.append(part[start:end])
        self.gaps.append(part[end:] + space)

    def joined(self, translations: Sequence[str]) -> str:
        """The text with translations in the places of its sentences, by `fill`."""
        return fill(self.gaps, translations)


def fill(gaps: Sequence[str], translations: Sequence[str]) -> str:
    """The translations of a text's sentences between its gaps.

    A language without spaces may have no gap between two sentences. One space separates their translations there,
    unless the first one ends with the punctuation of such a language.

    :param gaps: `SplitText.gaps`, one more than translations.
    """
    parts = [gaps[0]]
    for number, (translation, gap) in enumerate(zip(translations, gaps[1:], strict=True), start=1):
        is_inner = number < len(translations)
        missing = is_inner and not gap and not translation.endswith(_FINAL_WITHOUT_SPACE)
        parts += [translation, " " if missing else gap]
    return "".join(parts)


def _is_outside(character: str) -> bool:
    """Whether it doesn't belong to a sentence at whose end it stands: space, or an emoji or a part of one."""
    if character < "\u200d":
        return character.isspace()
    is_picture = category(character) == "So" and not "\u2c00" <= character < "\U0001f000"
    return is_picture or character in _EMOJI_PARTS or character.isspace()


def _ends_sentence(text: str, start: int, space: re.Match[str]) -> bool:
    """Whether a sentence that begins at `start` ends before this space: at a line end, or after final punctuation."""
    if any(each in LINE_ENDS for each in space[0]):
        return True
    before = text[max(start, space.start() - 12) : space.start()]
    while before and _is_outside(before[-1]):
        before = before[:-1]
    if before.endswith(_FINAL_WITHOUT_SPACE):
        return True
    if not before.rstrip(_CLOSING).endswith(_FINAL):
        return False
    following = text[space.end() : space.end() + 1]
    return not (following.islower() or following in ",;:" or _ABBREVIATION.search(before))
