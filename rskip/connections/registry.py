"""The families of connections that a spec can name, and what each says of itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rskip.settings.errors import SettingError, did_you_mean
from rskip.settings.paper import Paper

if TYPE_CHECKING:
    from rskip.connections.connection import Connection
    from rskip.connections.spec import ConnectionSpec

OptionValue = float | bool | str
ConnectionClass = TypeVar("ConnectionClass", bound="type[Connection]")


class Option(Protocol):
    """An option's default, and how its text is read; `read` raises SettingError that says what is expected."""

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
            raise SettingError.of_value("", text, f"a finite number{' above 0' if self.positive else ''}")
        return plain_number(value)


class Flag:
    """true or false."""

    def __init__(self, default: bool) -> None:
        self.default: OptionValue = default

    def read(self, text: str) -> OptionValue:
        if text not in ("true", "false"):
            raise SettingError.of_value("", text, "true or false")
        return text == "true"


class Choice:
    """One of the given words, in lower case; the first is the default."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.default: OptionValue = words[0]

    def read(self, text: str) -> OptionValue:
        if text not in self.words:
            raise SettingError.of_value("", text, f"{' or '.join(self.words)}{did_you_mean(text, self.words)}")
        return text


def plain_number(value: float) -> float:
    """Whole numbers as int, so that 2.0 is written 2; others, and those too large to be exact, as float."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else float(value)


@dataclass(frozen=True)
class Factor:
    """The λ before a family's name: `word` is the constructor's name for it.

    An `integer` one is at least 1; any other is a finite number above 0.
    """

    word: str
    integer: bool = False


@dataclass(frozen=True)
class Fold:
    """The simpler connection that a trained one becomes: the same function of x and f, up to the norm's eps.

    :param connection: spec of the simpler one, which is given `factor` times f: a factor for the branch's last linear
        map.
    :param renamed: members to those of the simpler one, where they differ.
    """

    connection: str
    factor: float = 1.0
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One family of connections: the class that computes it, and what a spec may say of it.

    :param name: lower-case letters and underscores.
    :param connection: built as `connection(features, feature_dim=..., **settings)`, where settings hold the factor
        under its word, `norm` where the family takes any, and every option.
    :param formula: y in terms of x and f.
    :param source: where that is from, with every option; for people.
    :param paper: that the family is from; one without a paper has `source` as its title.
    :param factor: its λ, if it takes one.
    :param norms: the normalisations it takes; None among them stands for having none.
    :param default_norm: the one meant where a spec names none.
    :param without_norm: why one is needed; `{factor}` in it is the spec's λ.
    :param options: its options by name.
    :param closing_norm: whether a stack of such blocks ends with one more normalisation; a function decides it by the
        spec.
    :param text_only: whether features must come last.
    :param check: raises ValueError for a spec whose parts contradict each other.
    :param fold: the simpler connection that one of a spec becomes for inference; None where there is none.
    """

    name: str
    connection: type[Connection]
    formula: str
    source: str
    paper: Paper
    factor: Factor | None = None
    norms: tuple[str | None, ...] = (None,)
    default_norm: str | None = None
    without_norm: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    closing_norm: bool | Callable[[ConnectionSpec], bool] = False
    text_only: bool = False
    check: Callable[[ConnectionSpec], None] | None = None
    fold: Callable[[ConnectionSpec], Fold | None] = lambda spec: None


_families: dict[str, Family] = {}


def register_connection(
    name: str, *, formula: str, source: str, paper: Paper | None = None, **fields: Any
) -> Callable[[ConnectionClass], ConnectionClass]:
    """Class decorator that makes a Connection known as `name` in specs; `fields` are Family's other fields.

    The same class may be registered again (its module imported twice). ValueError where another class has the
    name, or where it is not made of lower-case letters and underscores.
    """
    if not re.fullmatch(r"[a-z][a-z_]*", name):
        raise ValueError(f"a connection's name is lower-case letters and underscores, not {name!r}")
    unpublished = Paper(source.strip() or name, None, None)

    def register(cls: ConnectionClass) -> ConnectionClass:
        if name in _families and _path(_families[name].connection) != _path(cls):
            owner = _path(_families[name].connection)
            raise ValueError(f"connection {name!r} is taken by {owner}; choose another name for {_path(cls)}")
        _families[name] = Family(name, cls, formula, source, paper or unpublished, **fields)
        return cls

    return register


def list_connections() -> list[Family]:
    """Every known family, by name."""
    return [_families[name] for name in sorted(_families)]


def find_family(name: str, *, before: str = "", after: str = "") -> Family:
    """The family called `name`, which stands between `before` and `after` in a spec.

    SettingError, named `connection`, where there is none; it names the nearest known one.
    """
    if name not in _families:
        suggestion = did_you_mean(name, _families, before=before, after=after)
        known = ", ".join(sorted(_families))
        raise SettingError.of_value("connection", before + name + after, f"one of the families {known}{suggestion}")
    return _families[name]


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
