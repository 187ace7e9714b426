"""The kinds of value that an option of a connection takes: a number, a flag, or one of several words."""

from __future__ import annotations

import math
from typing import Protocol

from rskip.settings.nearest import did_you_mean

OptionValue = float | bool | str


class Option(Protocol):
    """An option's default, and how its text is read; `read` raises ValueError that says what is valid."""

    default: OptionValue

    def read(self, text: str) -> OptionValue: ...


class Number:
    """A finite number; with `positive`, one above 0."""

    def __init__(self, default: float, *, positive: bool = False) -> None:
        self.default: OptionValue = default
        self.positive = positive

    def read(self, text: str) -> OptionValue:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (self.positive and value <= 0):
            raise ValueError(f"must be a finite number{' above 0' if self.positive else ''}, not {text!r}")
        return plain_number(value)


class Flag:
    """true or false."""

    def __init__(self, default: bool) -> None:
        self.default: OptionValue = default

    def read(self, text: str) -> OptionValue:
        if text not in ("true", "false"):
            raise ValueError(f"must be true or false, not {text!r}")
        return text == "true"


class Choice:
    """One of the given words, in lower case; the first is the default."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.default: OptionValue = words[0]

    def read(self, text: str) -> OptionValue:
        if text not in self.words:
            suggestion = did_you_mean(text, self.words)
            raise ValueError(f"must be {' or '.join(self.words)}, not {text!r}{suggestion}")
        return text


def plain_number(value: float) -> float:
    """Whole numbers as int, so that 2.0 is written 2; others, and those too large to be exact, as float."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else float(value)
