"""The families of connections that a spec can name, and what each says of itself."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

from rskip.connections.connection import Connection, StackConnection, passes_x
from rskip.connections.norms import NORMS
from rskip.settings.errors import SettingError, did_you_mean
from rskip.settings.paper import Paper

if TYPE_CHECKING:
    from torch import Tensor

    from rskip.connections.spec import ConnectionSpec

OptionValue = float | bool | str
Passed = Literal["x", "streams", "history"]
ConnectionClass = TypeVar("ConnectionClass", bound="type[Connection]")


class UnknownFamily(SettingError):
    """A spec of a family that nobody has registered."""


class Option(Protocol):
    """An option's default, and how its text is read; `read` raises SettingError that says what is expected."""

    default: OptionValue

    def read(self, text: str) -> OptionValue: ...


LEAST, MOST = 1e-6, 1e6  # of what is above 0: beyond them float32 loses x or f, or overflows


class Number:
    """A number from `least` to `most`; where it is `positive`, from 1e-6."""

    def __init__(self, default: float, *, positive: bool = False, least: float = -MOST, most: float = MOST) -> None:
        self.default: OptionValue = default
        self.least, self.most = max(LEAST, least) if positive else least, most

    def read(self, text: str) -> OptionValue:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not self.least <= value <= self.most:
            raise SettingError.of_value("", text, f"a number from {self.least:g} to {self.most:g}")
        return plain_number(value)


class Whole:
    """A whole number from `least` to `most`."""

    def __init__(self, default: int, *, least: int, most: int) -> None:
        self.default: OptionValue = default
        self.least, self.most = least, most

    def read(self, text: str) -> OptionValue:
        try:
            value = int(text)
        except ValueError:
            value = self.least - 1
        if not self.least <= value <= self.most:
            raise SettingError.of_value("", text, f"a whole number from {self.least} to {self.most}")
        return value


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

    An `integer` one is at least 1; any other is a number from 1e-6 to 1e6.
    """

    word: str
    integer: bool = False


@dataclass(frozen=True)
class Fold:
    """The simpler connection that a trained one becomes: the same function of x and f, up to the norm's eps.

    :param connection: spec of the simpler one, which is given `factor` times f: a factor for the branch's last linear
        map, a number or one a feature (C). A function finds it from the trained connection.
    :param renamed: members to those of the simpler one, where they differ.
    """

    connection: str
    factor: float | Callable[[Connection], float | Tensor] = 1.0
    renamed: Mapping[str, str] = field(default_factory=dict)

    def factor_of(self, connection: Connection) -> float | Tensor:
        """The factor for this trained connection."""
        return self.factor(connection) if callable(self.factor) else self.factor


@dataclass(frozen=True)
class Family:
    """One family of connections: the class that computes it, and what a spec may say of it.

    :param name: lower-case letters, digits and underscores, a letter first.
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
    :param text_only: whether features must come last; a function decides it by the spec.
    :param needs_place: whether the class is also given `place`, a Place.
    :param needs_branch: whether a model must build what `Connection.inner_norms` and `scales_heads` ask for.
    :param needs_profile: whether a pass over data sets its initial values, without which it isn't trained.
    :param passes: what goes from block to block: x alone, several streams of x's shape, or the outputs of all earlier
        layers too. For text, but where it is x.
    :param stack: what the stack of blocks does first and last, built as `stack(features, **settings)`; None: nothing.
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
    text_only: bool | Callable[[ConnectionSpec], bool] = False
    needs_place: bool = False
    needs_branch: bool = False
    needs_profile: bool = False
    passes: Passed = "x"
    stack: type[StackConnection] | None = None
    check: Callable[[ConnectionSpec], None] | None = None
    fold: Callable[[ConnectionSpec], Fold | None] = lambda spec: None

    def __post_init__(self) -> None:
        if not isinstance(self.norms, tuple) or not {None, *NORMS}.issuperset(self.norms):
            raise self._wrong("norms", f"a tuple of None and {', '.join(NORMS)}, not {self.norms!r}")
        if self.default_norm is not None and self.default_norm not in self.norms:
            raise self._wrong("default_norm", f"one of its norms, not {self.default_norm!r}")
        if self.factor is not None and not isinstance(self.factor, Factor):
            raise self._wrong("factor", f"a Factor, not {self.factor!r}")
        for name, option in self.options.items():
            if not hasattr(option, "read"):
                raise self._wrong(f"option {name}", f"a Number, Whole, Flag or Choice, not {option!r}")
        if self.passes not in get_args(Passed):
            raise self._wrong("passes", f"{', '.join(get_args(Passed))}, not {self.passes!r}")
        self._check_class()

    def _check_class(self) -> None:
        """Whether the class is built with what a spec gives it, and passes on what the family says."""
        if not (isinstance(self.connection, type) and issubclass(self.connection, Connection)):
            raise self._wrong("its class", f"one derived from Connection, not {self.connection!r}")
        of_norm = () if self.norms == (None,) else ("norm",)
        of_factor = () if self.factor is None else (self.factor.word,)
        words = ("feature_dim", *of_norm, *of_factor, *self.options, *(("place",) if self.needs_place else ()))
        try:
            inspect.signature(self.connection).bind(1, **dict.fromkeys(words))
        except TypeError as error:
            raise self._wrong("its class", f"one that is built with (features, {', '.join(words)}): {error}") from None
        if self.passes == "x" and not passes_x(self.connection):
            raise self._wrong("passes", "streams or history, since its class has its own before or after")

    def _wrong(self, name: str, expected: str) -> ValueError:
        return ValueError(f"connection {self.name}: {name}: expected {expected}")

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs beyond x and f: "place", "branch", "profile", "streams", "history"."""
        needs = {"place": self.needs_place, "branch": self.needs_branch, "profile": self.needs_profile}
        passed = () if self.passes == "x" else (self.passes,)
        return tuple(name for name, needed in needs.items() if needed) + passed

    @property
    def works_on(self) -> tuple[str, ...]:
        """Text, and images where they take it in some form: ("text", "images")."""
        return ("text",) if self.text_only is True or self.passes != "x" else ("text", "images")


_families: dict[str, Family] = {}

# Published weights bear these names. Of the other families' a class of one's own may take any: it may be the older one.
_KEPT = ("highway", "prenorm", "rskip", "sas", "wskip", "xskip")
_OWN = __name__.partition(".")[0] + "."


def register_connection(
    name: str, *, formula: str, source: str, paper: Paper | None = None, **fields: Any
) -> Callable[[ConnectionClass], ConnectionClass]:
    """Class decorator that makes a Connection known as `name` in specs; `fields` are Family's other fields.

    The same class may be registered again (its module imported twice), and one of one's own may replace a family of
    rskip's that no published weights name. ValueError where another class has the name, or where it is not made of
    lower-case letters, digits and underscores, a letter first; and where the fields or the class can't be so.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]*", name)):
        raise ValueError(f"a connection's name is lower-case letters, digits and underscores, not {name!r}")
    if not (isinstance(formula, str) and isinstance(source, str)):
        raise ValueError(f"connection {name}: formula and source: expected texts")
    unpublished = Paper(source.strip() or name, None, None)

    def register(cls: ConnectionClass) -> ConnectionClass:
        owner = _path(_families[name].connection) if name in _families else None
        replaceable = owner is None or (owner.startswith(_OWN) and name not in _KEPT)
        if not replaceable and owner != _path(cls):
            raise ValueError(f"connection {name!r} is taken by {owner}; choose another name for {_path(cls)}")
        _families[name] = Family(name, cls, formula, source, paper or unpublished, **fields)
        return cls

    return register


def list_connections() -> list[Family]:
    """Every known family, by name."""
    return [_families[name] for name in sorted(_families)]


def find_family(name: str, *, before: str = "", after: str = "") -> Family:
    """The family called `name`, which stands between `before` and `after` in a spec.

    UnknownFamily, named `connection`, where there is none; it names the nearest known one.
    """
    if name not in _families:
        suggestion = did_you_mean(name, _families, before=before, after=after)
        known = f"of docs/connections.md{suggestion}" if suggestion else ", ".join(sorted(_families))
        raise UnknownFamily.of_value("connection", before + name + after, f"one of the families {known}")
    return _families[name]


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
