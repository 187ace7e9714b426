"""The registry of connection families that a spec can name, with the properties of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rskip.connections.connection import Connection, StackConnection, overrides, passes_x
from rskip.connections.norms import NORMS
from rskip.connections.options import LEAST, MOST, Option, options_of
from rskip.settings.errors import SettingError, did_you_mean, nearest
from rskip.settings.paper import Paper

if TYPE_CHECKING:
    from torch import Tensor

    from rskip.connections.spec import ConnectionSpec

Passed = Literal["x", "streams", "history"]
ConnectionClass = TypeVar("ConnectionClass", bound="type[Connection]")


class UnknownFamily(SettingError):
    """A spec names a family that is not registered."""


@dataclass(frozen=True)
class Factor:
    """The λ before a family's name.

    :param word: name of the constructor's parameter for it.
    :param integer: whether λ is an integer from 1 to 100; otherwise it is a number from 1e-6 to 1e6.
    """

    word: str
    integer: bool = False

    @property
    def values(self) -> str:
        """Its possible values in words."""
        return "an integer from 1 to 100" if self.integer else f"a number from {LEAST:g} to {MOST:g}"


@dataclass(frozen=True)
class Fold:
    """A simpler connection that computes the same function of x and f as a trained one, up to the norm's eps.

    :param connection: spec of the simpler connection. It receives `factor` times f.
    :param factor: factor for the branch's last linear map: one number, or one per feature (C). A function computes it
        from the trained connection.
    :param renamed: names of members that differ, trained name to simpler name.
    """

    connection: str
    factor: float | Callable[[Connection], float | Tensor] = 1.0
    renamed: Mapping[str, str] = field(default_factory=dict)

    def factor_of(self, connection: Connection) -> float | Tensor:
        """The factor for this trained connection."""
        return self.factor(connection) if callable(self.factor) else self.factor


@dataclass(frozen=True)
class Family:
    """One family of connections: the class that computes it, and what a spec may contain.

    :param name: lower-case letters, digits and underscores, a letter first.
    :param connection: the class, built as `connection(features, feature_dim=..., **settings)`. The settings contain the
        factor under its word, `norm` if the family takes normalisations, and every option.
    :param formula: y in terms of x and f.
    :param source: the source of the formula and of every option, for readers.
    :param paper: the paper that introduced the family. A family without one has `source` as its title.
    :param factor: its λ, if it takes one.
    :param norms: the normalisations that it takes; None stands for no normalisation.
    :param default_norm: the normalisation of a spec that names none.
    :param closing_norm: whether a stack of such blocks ends with one more normalisation, or a function of the spec that
        decides it.
    :param stack: the class that opens and closes the stack, built as `stack(features, **settings)`.
    :param only_with: options that have an effect only if another option has a value: name to (other, value).
    :param check: raises ValueError for a spec whose parts contradict each other in another way.
    :param fold: maps a spec to the simpler connection that it becomes for inference, or to None.

    `register_connection` reads the following from the class, unless the caller passes them:

    :param options: its options by name: the annotated parameters of the class (see `options_of`).
    :param passes: what blocks pass on: "x" (one tensor), or "streams" (several tensors of x's shape) if the class
        overrides `before` or `after`. The caller must pass "history" for dense (cross-layer) blocks, which also read
        the outputs of all earlier layers.
    :param text_only: whether features must come last, or a function of the spec that decides it. True if blocks pass on
        more than x or need a profiling pass, or if the class overrides `branch_input` and its stacks have a closing
        normalisation.
    """

    name: str
    connection: type[Connection]
    formula: str
    source: str
    paper: Paper
    factor: Factor | None = None
    norms: tuple[str | None, ...] = (None,)
    default_norm: str | None = None
    closing_norm: bool | Callable[[ConnectionSpec], bool] = False
    stack: type[StackConnection] = StackConnection
    only_with: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    check: Callable[[ConnectionSpec], None] = lambda spec: None
    fold: Callable[[ConnectionSpec], Fold | None] = lambda spec: None
    options: Mapping[str, Option] = field(default_factory=dict)
    passes: Passed = "x"
    text_only: bool | Callable[[ConnectionSpec], bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.norms, str) or not {None, *NORMS}.issuperset(self.norms):
            raise SettingError.of_value(f"norms of {self.name}", self.norms, f"a tuple of None and {', '.join(NORMS)}")
        if not re.fullmatch(r"(?!e\d)[a-z][a-z0-9_]*" if self.factor else "[a-z][a-z0-9_]*", self.name):
            expected = "lower-case letters, digits and underscores, a letter first; with a factor not e and a digit"
            raise SettingError.of_value("name of the connection", self.name, expected)

    @cached_property
    def needs_place(self) -> bool:
        """Whether the class takes `place`, a Place: its constructor has that parameter without a default."""
        place = inspect.signature(self.connection).parameters.get("place")
        return place is not None and place.default is place.empty

    @property
    def needs_branch(self) -> bool:
        """Whether a model must build the modules that `inner_norms` and `scales_heads` describe."""
        return overrides(self.connection, "inner_norms", "scales_heads")

    @property
    def needs_profile(self) -> bool:
        """Whether a pass over data sets its initial values."""
        return self.connection.needs_profile

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs in addition to x and f, out of "place", "branch", "profile", "streams" and "history"."""
        needs = {"place": self.needs_place, "branch": self.needs_branch, "profile": self.needs_profile}
        passed = () if self.passes == "x" else (self.passes,)
        return tuple(name for name, needed in needs.items() if needed) + passed

    @property
    def works_on(self) -> tuple[str, ...]:
        """("text",) or ("text", "images"): sequences, such as text or a ViT's patches, and feature maps of ResNets.

        Images are included if any spec of the family works on them.
        """
        return ("text",) if self.text_only is True or self.passes != "x" else ("text", "images")


def _read_class(cls: type[Connection], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of Family: the caller's, completed by those read from the class."""
    passes = fields.get("passes", "x" if passes_x(cls) else "streams")
    text_only = passes != "x" or cls.needs_profile
    if overrides(cls, "branch_input") and not text_only:
        text_only = fields.get("closing_norm", False)
    taken = {"features", "feature_dim", "norm", "place", fields["factor"].word if fields.get("factor") else ""}
    return {"passes": passes, "text_only": text_only, "options": options_of(cls, taken), **fields}


_families: dict[str, Family] = {}

# Published weights use these names. A user's class may take any other name: the class may be older than our family.
_KEPT = ("highway", "prenorm", "rskip", "sas", "wskip", "xskip")
_OWN = __name__.partition(".")[0] + "."
# what people call a connection elsewhere, and its spec
_USUAL_NAMES = {
    **dict.fromkeys(("post", "postln", "postnorm", "post_ln", "post_norm"), "1xskip+ln"),
    **dict.fromkeys(("pre", "preln", "pre_ln", "pre_norm"), "prenorm+ln"),
    **dict.fromkeys(("identity", "plain", "resnet", "residual"), "1xskip"),
}


def register_connection(
    name: str, *, formula: str, source: str, paper: Paper | None = None, **fields: Any
) -> Callable[[ConnectionClass], ConnectionClass]:
    """Class decorator that registers a Connection under a name for specs.

    The same class may be registered again, because its module may be imported twice. Your own class may replace one of
    rskip's families unless published weights use that family.

    :param name: lower-case letters, digits and underscores, a letter first.
    :param fields: the other fields of `Family`. Most are read from the class.
    :raises ValueError: another class has the name, or the name or `norms` is not valid.
    """
    unpublished = Paper(source.strip() or name, None, None)

    def register(cls: ConnectionClass) -> ConnectionClass:
        owner = _path(_families[name].connection) if name in _families else None
        replaceable = owner is None or (owner.startswith(_OWN) and name not in _KEPT)
        if not replaceable and owner != _path(cls):
            raise ValueError(f"connection {name!r} is taken by {owner}; choose another name for {_path(cls)}")
        _families[name] = Family(name, cls, formula, source, paper or unpublished, **_read_class(cls, fields))
        return cls

    return register


def list_connections() -> list[Family]:
    """All registered families, sorted by name."""
    return [_families[name] for name in sorted(_families)]


def find_family(name: str, *, before: str = "", after: str = "") -> Family:
    """Finds a family by its name.

    :param before: the part of the spec before the name, for the error message; `after` likewise.
    :raises UnknownFamily: it does not exist. The error is named `connection` and suggests the nearest known family.
    """
    if name not in _families:
        near = nearest(name, _families)
        factor = before if near and _families[near[0]].factor else ""
        suggestion = did_you_mean(name, near, before=factor, after=after)
        if usual := _USUAL_NAMES.get(name):
            suggestion = f" (did you mean {usual!r}?)"
        expected = "a connection from docs/connections.md" + (suggestion or ", such as 2rskip+ln")
        advice = "if it is your own, import its module or give --user-dir"
        raise UnknownFamily.of_value("connection", before + name + after, expected, advice=advice)
    return _families[name]


def name_of(connection: Connection) -> str:
    """The name of its family, or of its class if that isn't registered."""
    names = (name for name, family in _families.items() if family.connection is type(connection))
    return next(names, type(connection).__name__)


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
