"""What is wrong with a setting, in its parts: Python, the command line and fairseq each name it as their users do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import partial
from typing import Any

UNKNOWN = "unknown key"
_SHORT = 80  # characters of a value or a list that an error gives whole


class SettingError(ValueError):
    """A setting that can't be used. Its text is `sentence()`.

    :param name: the setting, its levels joined by dots, such as `train.lr`; "" for a whole file.
    :param problem: what is wrong with it, as words that follow its name, such as `is 0`.
    :param expected: what it has to be; "" where `problem` says it.
    :param advice: what to do.
    :param instead: the setting to give in place of this one.
    :param source: where it was given, such as a file.
    """

    def __init__(
        self, name: str, problem: str, *, expected: str = "", advice: str = "", instead: str = "", source: str = ""
    ) -> None:
        self.name, self.problem, self.expected, self.advice = name, problem, expected, advice
        self.instead, self.source = instead, source
        super().__init__(self.sentence())

    @classmethod
    def of_value(cls, name: str, value: object, expected: str, *, advice: str = "", source: str = "") -> SettingError:
        """`name` has a value that it can't have."""
        return cls(name, f"is {shown(value)}", expected=expected, advice=advice, source=source)

    @classmethod
    def of_unknown_key(
        cls, name: str, key: object, known: Iterable[str], *, listed: str = "", source: str = ""
    ) -> SettingError:
        """`name`, a mapping, has a key that nobody knows.

        :param listed: where a reader finds the known keys, which many of them make too long for a line.
        """
        known = list(known)
        near, keys = nearest(key, known), ", ".join(known)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {keys}"
        if not near and listed and len(keys) > _SHORT:
            like = ", ".join(difflib.get_close_matches(shown_key(key), known, n=3, cutoff=0))
            hint = f"the most alike of {len(known)} keys: {like}; all are in {listed}"
        return cls(joined(name, shown_key(key)), UNKNOWN, advice=hint, source=source)

    def sentence(self, name: str | None = None, *, instead: str | None = None) -> str:
        """One line that says what was given, what is expected, and what to do.

        :param name: what the setting is called where the sentence is read, such as --beam; `instead` likewise.
        """
        name, instead = self.name if name is None else name, self.instead if instead is None else instead
        what = (self.problem, name) if self.problem == UNKNOWN else (name, self.problem)
        expected = f"expected {self.expected}" if self.expected else ""
        parts = (self.source, " ".join(part for part in what if part), expected)
        use = f"use {instead}" if instead else ""
        line = "; ".join(part for part in (": ".join(part for part in parts if part), use, self.advice) if part)
        return line if len(line.splitlines()) == 1 else " ".join(line.split())

    def within(self, name: str = "", *, source: str = "") -> SettingError:
        """The same of a setting that lies in the mapping `name`, or that was given in `source`."""
        return self.named(joined(name, self.name), source=source)

    def named(self, name: str, *, source: str = "") -> SettingError:
        """The same of a setting that is called `name`, or that was given in `source`."""
        return SettingError(name, self.problem, **{**self._further, "source": source or self.source})

    @property
    def _further(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("expected", "advice", "instead", "source")}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SettingError, self.name, self.problem, **self._further), ()  # from a worker process


def joined(*names: str) -> str:
    """Names of levels as one dotted name; empty ones are left out."""
    return ".".join(name for name in names if name)


def shown(value: object) -> str:
    """A value as an error shows it, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # the second of a number with more digits than Python writes
        text = f"a {type(value).__name__} that is too long to be shown"
    return text if len(text) <= _SHORT else f"{text[:_SHORT - 3]}..."


def shown_key(key: object) -> str:
    """A mapping's key as an error shows it: as it is where it prints, else as Python writes it."""
    return key if isinstance(key, str) and key.isprintable() and 0 < len(key) <= _SHORT else shown(key)


def nearest(name: object, known: Iterable[str], *, count: int = 1) -> list[str]:
    """The known names that are most like `name`, the most alike first; none where none is alike."""
    text = name if isinstance(name, str) else shown(name)
    return difflib.get_close_matches(text[:_SHORT], list(known), n=count, cutoff=0.5)


def did_you_mean(name: object, known: Iterable[str], *, before: str = "", after: str = "") -> str:
    """` (did you mean 'x'?)` with the nearest known name, or nothing where none is alike.

    `before` and `after` complete the suggestion, so that it is a whole spec.
    """
    found = nearest(name, known)
    return f" (did you mean {before + found[0] + after!r}?)" if found else ""
