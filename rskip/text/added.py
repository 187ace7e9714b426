"""Splits text at the tokens that were added to a vocabulary, as the tokenizers of Hugging Face do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rskip.settings.check import Checked

_MARK = "\u2581"  # SentencePiece's space
_ALONE: dict[bool | Literal["spaces"], str] = {
    False: "{}",
    True: r"(?<!\w){}(?!\w)",
    "spaces": r"(?<![^ ]){}(?![^ ])",
}


@dataclass(frozen=True, kw_only=True)
class AddedToken(Checked):
    """A token that is found in text before the text is segmented. The flags are those of Hugging Face's AddedToken.

    :param content: the text that becomes the token.
    :param lstrip: spaces before it are dropped. Otherwise they become one unit.
    :param rstrip: spaces after it are dropped.
    :param single_word: it is not part of a longer word; "spaces": only spaces may be next to it.
    :param normalized: it is searched for in text in which SentencePiece has replaced characters.
    :param special: translations leave it out.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool | Literal["spaces"] = False
    normalized: bool = False
    special: bool = False

    @property
    def unit(self) -> str:
        """The token in a dictionary, where units contain no spaces."""
        return self.content.replace(" ", _MARK)


class AddedTokens:
    """Segments text with added tokens. Where several tokens fit, the longest counts.

    :param tokens: the tokens.
    :param normalise: replaces characters as the units do.
    """

    def __init__(self, tokens: Sequence[AddedToken], normalise: Callable[[str], str]) -> None:
        self._normalise = normalise
        self._hidden = {token.unit for token in tokens if token.special}
        self._passes = [
            (_Pattern({prepare(token.content): token for token in each}), prepare)
            for each, prepare in (
                ([token for token in tokens if not token.normalized], str),
                ([token for token in tokens if token.normalized], normalise),
            )
            if each
        ]

    def segment(self, sentence: str, segment: Callable[[str], str]) -> str:
        """Units joined by single spaces.

        :param segment: does the same for the text between the tokens.
        """
        parts: list[str | AddedToken] = [sentence]
        for pattern, prepare in self._passes:
            parts = [
                inner for part in parts for inner in (pattern.parts(prepare(part)) if isinstance(part, str) else [part])
            ]
        if len(parts) == 1:
            return segment(sentence)
        return " ".join(filter(None, self._units(parts, segment)))

    def visible(self, units: str) -> str:
        """Units joined by single spaces, without the special tokens."""
        if not self._hidden:
            return units
        return " ".join(unit for unit in units.split(" ") if unit not in self._hidden)

    def _units(self, parts: Sequence[str | AddedToken], segment: Callable[[str], str]) -> Iterator[str]:
        """The units of each part. Parts alternate between text, which may be empty, and tokens."""
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            if isinstance(part, AddedToken):
                yield part.unit
                continue
            if isinstance(before, AddedToken) and before.rstrip:
                part = part.lstrip()
            if isinstance(after, AddedToken) and after.lstrip:
                part = part.rstrip()
            units = segment(part)
            yield units
            if after is not None and self._normalise(part).endswith((" ", _MARK)) and units.split(" ")[-1] != _MARK:
                yield _MARK


class _Pattern:
    """Finds tokens, given by the text that becomes each."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        self._tokens = tokens
        longest_first = sorted(tokens, key=len, reverse=True)
        self._pattern = re.compile(
            "|".join(_ALONE[tokens[text].single_word].format(re.escape(text)) for text in longest_first)
        )

    def parts(self, text: str) -> Iterator[str | AddedToken]:
        place = 0
        for match in self._pattern.finditer(text):
            yield text[place : match.start()]
            yield self._tokens[match[0]]
            place = match.end()
        yield text[place:]
