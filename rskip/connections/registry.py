"""The families of connections that a spec can name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from rskip.connections.options import Option
from rskip.settings.nearest import did_you_mean

if TYPE_CHECKING:
    from rskip.connections.connection import Connection
    from rskip.connections.spec import ConnectionSpec

ConnectionClass = TypeVar("ConnectionClass", bound="type[Connection]")


@dataclass(frozen=True)
class Factor:
    """The λ before a family's name: `word` is the constructor's name for it.

    An `integer` one is at least 1; any other is a finite number above 0.
    """

    word: str
    integer: bool = False


@dataclass(frozen=True)
class Family:
    """One family of connections: the class that computes it, and what a spec may say of it.

    name: lower-case letters and underscores.
    connection: built as `connection(features, feature_dim=..., **settings)`, where settings hold the factor
        under its word, `norm` where the family takes any, and every option.
    formula, source: for people.
    factor: its λ, if it takes one.
    norms: the normalisations it takes; None among them stands for having none.
    default_norm: the one meant where a spec names none.
    without_norm: why one is needed; `{factor}` in it is the spec's λ.
    options: its options by name.
    closing_norm: whether a stack of such blocks ends with one more normalisation.
    text_only: whether features must come last.
    check: raises ValueError for a spec whose parts contradict each other.
    """

    name: str
    connection: type[Connection]
    formula: str
    source: str
    factor: Factor | None = None
    norms: tuple[str | None, ...] = (None,)
    default_norm: str | None = None
    without_norm: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)
    closing_norm: bool = False
    text_only: bool = False
    check: Callable[[ConnectionSpec], None] | None = None


_families: dict[str, Family] = {}


def register_connection(
    name: str, *, formula: str, source: str, **fields: Any
) -> Callable[[ConnectionClass], ConnectionClass]:
    """Class decorator that makes a Connection known as `name` in specs; `fields` are Family's other fields.

    The same class may be registered again (its module imported twice). ValueError where another class has the
    name, or where it is not made of lower-case letters and underscores.
    """
    if not re.fullmatch(r"[a-z][a-z_]*", name):
        raise ValueError(f"a connection's name is lower-case letters and underscores, not {name!r}")

    def register(cls: ConnectionClass) -> ConnectionClass:
        if name in _families and _path(_families[name].connection) != _path(cls):
            owner = _path(_families[name].connection)
            raise ValueError(f"connection {name!r} is taken by {owner}; choose another name for {_path(cls)}")
        _families[name] = Family(name, cls, formula, source, **fields)
        return cls

    return register


def list_connections() -> list[Family]:
    """Every known family, by name."""
    return [_families[name] for name in sorted(_families)]


def find_family(name: str, *, before: str = "", after: str = "") -> Family:
    """The family called `name`, which stands between `before` and `after` in a spec.

    ValueError that names the nearest known one where there is none.
    """
    if name not in _families:
        suggestion = did_you_mean(name, _families, before=before, after=after)
        known = ", ".join(sorted(_families))
        raise ValueError(f"unknown connection {before + name + after!r}{suggestion}; known families: {known}")
    return _families[name]


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
