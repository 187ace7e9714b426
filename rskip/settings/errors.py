"""Errors in settings, in separate parts, so that Python, the command line and fairseq can each use their own names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

UNKNOWN = "unknown key"
_SHORT = 80  # an error shows values and lists of up to this many characters in full
_NAMES = 10  # an error lists up to this many names


class SettingError(ValueError):
    """Raised for a wrong setting. Its text is `sentence()`.

    :param name: the setting's name, with levels joined by dots, such as `train.lr`; "" for a whole file.
    :param problem: what is wrong, in words that follow the name, such as `is 0`.
    :param expected: the expected value; "" if `problem` says it.
    :param advice: what to do.
    :param instead: the setting to use instead of this one.
    :param source: where the setting was given, such as a file.
    """

    def __init__(
        self, name: str, problem: str, *, expected: str = "", advice: str = "", instead: str = "", source: str = ""
    ) -> None:
        self.name, self.problem, self.expected, self.advice = name, problem, expected, advice
        self.instead, self.source = instead, source
        super().__init__(self.sentence())

    @classmethod
    def of_value(cls, name: str, value: object, expected: str, *, advice: str = "", source: str = "") -> SettingError:
        """The error for a wrong value of `name`."""
        return cls(name, f"is {shown(value)}", expected=expected, advice=advice, source=source)

    @classmethod
    def of_unknown_key(cls, name: str, key: object, known: Iterable[str], *, listed: str = "") -> SettingError:
        """The error for an unknown key of the mapping `name`.

        :param listed: the place that lists the known keys, if they are too many for one line.
        """
        known = list(known)
        near, keys = nearest(key, known), ", ".join(known)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {keys}"
        if not near and listed and len(keys) > _SHORT:
            like = ", ".join(difflib.get_close_matches(shown_key(key), known, n=3, cutoff=0))
            hint = f"the closest of {len(known)} keys: {like}; {listed} has all"
        return cls(joined(name, shown_key(key)), UNKNOWN, advice=hint)

    def sentence(self, name: str | None = None, *, instead: str | None = None) -> str:
        """One line that says what was given, what was expected, and what to do.

        :param name: the setting's name for the reader, such as --beam; `instead` likewise.
        """
        name, instead = self.name if name is None else name, self.instead if instead is None else instead
        what = (self.problem, name) if self.problem == UNKNOWN else (name, self.problem)
        expected = f"expected {self.expected}" if self.expected else ""
        parts = (self.source, " ".join(part for part in what if part), expected)
        use = f"use {instead}" if instead else ""
        line = "; ".join(part for part in (": ".join(part for part in parts if part), use, self.advice) if part)
        return line if len(line.splitlines()) == 1 else " ".join(line.split())

    def within(self, name: str = "", *, source: str = "") -> SettingError:
        """The same error for a setting in the mapping `name`, or given in `source`."""
        return self.named(joined(name, self.name), source=source)

    def named(self, name: str, *, source: str = "") -> SettingError:
        """The same error for a setting with the name `name`, or given in `source`."""
        return SettingError(name, self.problem, **{**self._further, "source": source or self.source})

    @property
    def _further(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("expected", "advice", "instead", "source")}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(SettingError, self.name, self.problem, **self._further), ()  # pickled by worker processes


@contextmanager
def errors_about(source: object) -> Iterator[None]:
    """Errors of settings in the block name their source, such as a file."""
    try:
        yield
    except SettingError as error:
        raise error.within(source=str(source)) from None


def joined(*names: str) -> str:
    """Joins the names of levels by dots; skips empty names."""
    return ".".join(name for name in names if name)


def shown(value: object) -> str:
    """A value as an error shows it, on one line; a long value is truncated."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # ValueError: a number with more digits than Python prints
        text = f"a {type(value).__name__} that is too long to show"
    if "\n" in text:  # such as a matrix
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHORT else f"{text[:_SHORT - 3]}..."


def shown_key(key: object) -> str:
    """A mapping's key as an error shows it: unchanged if it is printable, otherwise as its repr."""
    return key if isinstance(key, str) and key.isprintable() and 0 < len(key) <= _SHORT else shown(key)


def nearest(name: object, known: Iterable[str], *, count: int = 1) -> list[str]:
    """The known names closest to `name`, the closest first; empty if none is similar."""
    text = name if isinstance(name, str) else shown(name)
    return difflib.get_close_matches(text[:_SHORT], list(known), n=count, cutoff=0.5)


def first_names(names: Iterable[str], *, listed: str) -> str:
    """Names as an error lists them: the first ten, and the number of the others.

    :param listed: what lists all of them, such as a command.
    """
    names = list(names)
    others = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {others} more ({listed} lists all)" if others > 0 else "")


def did_you_mean(name: object, known: Iterable[str], *, before: str = "", after: str = "") -> str:
    """` (did you mean 'x'?)` with the closest known name; "" if none is similar.

    `before` and `after` complete the suggestion, for example to a complete spec.
    """
    found = nearest(name, known)
    return f" (did you mean {before + found[0] + after!r}?)" if found else ""
