"""Splits a text into its sentences, and puts their translations in their places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category

LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_CLOSING = "\"'”’»)]"
_CLOSING_WITHOUT_SPACE = "」』）】〉》”’"
_EMOJI_PARTS = "\u200d\ufe0e\ufe0f\u20e3\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
# final punctuation: also that of Arabic, Urdu, Hindi, Amharic, Burmese, Khmer and Armenian; of languages without spaces
_FINAL = (".", "!", "?", "…", "؟", "۔", "।", "॥", "።", "፧", "။", "។", "։")
_ENDS = "。！？｡"  # of languages without spaces
# a quotation that ends inside a sentence isn't cut off: 「行く。」と言った。
_SPACES = re.compile(rf"\s+|(?<=[{_ENDS}])(?=[^\s{_ENDS}{_CLOSING_WITHOUT_SPACE}])")
_NO_BREAK = re.compile("[\xa0\u2007\u202f]+")
_MARK_OR_LINE_END = re.compile(f'["{LINE_ENDS}]')
_LETTER = re.compile(r"[^\W\d_]")
# words whose full stop rarely ends a sentence: initials, titles, and abbreviations of some European languages
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'«“„])(?:(?:[^\W\d_]\.)*[^\W\d_]|mr|mrs|ms|dr|prof|st|vs|bzw|ca|str|hr|fr|mme|mlle|sra?|inc|gen|col|sgt|"
    r"capt|lt|ft|maj|gov|sen|rep|hon|rev|approx|sog|geb|mio|mrd|ing|dipl|vgl|ggf|evtl|inkl|av|dott|sig|dhr|mevr|drs|ул|"
    r"им|проф)\.$",
    re.IGNORECASE,
)
# those before a number
_BEFORE_NUMBER = re.compile(
    r"(?:^|[\s(])(?:nos?|nr|art|fig|vol|pp|ch|sec|eq|abb|kap|bd|est|jan|feb|apr|aug|sept?|oct|okt|nov|dec|dez)\.$",
    re.IGNORECASE,
)
# German ordinal numbers, before words that begin with a capital
_ORDINAL = re.compile(
    r"(?:^|\s)(?i:am|an|ab|bis|das|dem|den|der|des|die|im|ins|vom|zum|zur|seit|und|für|beim|nach|vor|"
    r"(?:sein|ihr)e?[mnrs]?)\s(?:\d{1,3}|[IVXL]+)\.$"
)
_LONGEST = 24  # characters before a space that decide


class SplitText:
    """A text in sentences.

    sentences: without the space and the emoji around them; none of them has a line end inside. A part without a letter,
        such as 12:30, counts as space, since a model would make words of it.
    gaps: the space before the first sentence, between two, and after the last one.
    """

    def __init__(self, text: str) -> None:
        self.sentences: list[str] = []
        self.gaps = [""]
        start, closing = 0, _closing_marks(text)
        for match in _SPACES.finditer(text):
            if _ends_sentence(text, start, match, closing):
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
        missing = is_inner and not gap and not translation.endswith((*_ENDS,))
        parts += [translation, " " if missing else gap]
    return "".join(parts)


def _is_outside(character: str) -> bool:
    """Whether it doesn't belong to a sentence at whose end it stands: space, or an emoji or a part of one."""
    if character < "\u200d":
        return character.isspace()
    is_picture = category(character) == "So" and not "\u2c00" <= character < "\U0001f000"
    return is_picture or character in _EMOJI_PARTS or character.isspace()


def _closing_marks(text: str) -> set[int]:
    """The places of the marks " that end a quotation: every second one of a line."""
    found, is_open = set(), False
    for mark in _MARK_OR_LINE_END.finditer(text):
        if mark[0] != '"':
            is_open = False
            continue
        if is_open:
            found.add(mark.start())
        is_open = not is_open
    return found


def _ends_sentence(text: str, start: int, space: re.Match[str], closing: set[int]) -> bool:
    """Whether a sentence that begins at `start` ends before this space: at a line end, or after final punctuation."""
    if any(each in LINE_ENDS for each in space[0]):
        return True
    if _NO_BREAK.fullmatch(space[0]):
        return False
    before = text[max(start, space.start() - _LONGEST) : space.start()]
    while before and _is_outside(before[-1]):
        before = before[:-1]
    if before.rstrip(_CLOSING_WITHOUT_SPACE).endswith((*_ENDS,)):
        return True
    if not before.rstrip(_CLOSING + " ").endswith(_FINAL):
        return False
    following = text[space.end() : space.end() + 4]
    if space.end() in closing and not following[1:2].strip():
        return False  # "I go. " as some write in French
    if following.lstrip("—–- ")[:1].islower() or following[:1] in ",;:":
        return False
    is_number = following[:1].isdigit() and _BEFORE_NUMBER.search(before)
    return not (is_number or _ABBREVIATION.search(before) or _ORDINAL.search(before))
