"""The former way to declare options, `register_connection(options=...)`, for older user-dirs."""

from __future__ import annotations

import warnings

from rskip.connections.options import LEAST, MOST, Bounds, Option


def _warn(name: str, annotation: str) -> None:
    advice = f"leave options out of register_connection, and annotate the parameter as {annotation}"
    warnings.warn(f"rskip.connections.{name} is the former way to declare an option: {advice}", DeprecationWarning, 3)


def Number(default: float, *, positive: bool = False, least: float = -MOST, most: float = MOST) -> Option:
    """A number from `least` to `most`; with `positive` at least 1e-6."""
    _warn("Number", "float, or Annotated[float, Bounds(ge=..., le=...)]")
    return Option(float, default, Bounds(max(LEAST, least) if positive else least, most))


def Whole(default: int, *, least: int, most: int) -> Option:
    """A whole number from `least` to `most`."""
    _warn("Whole", "Annotated[int, Bounds(ge=..., le=...)]")
    return Option(int, default, Bounds(least, most))


def Flag(default: bool) -> Option:
    """true or false."""
    _warn("Flag", "bool")
    return Option(bool, default)


def Choice(*words: str) -> Option:
    """One of the words; the first is the default."""
    _warn("Choice", "Literal[...]")
    return Option(str, words[0], words=words)
