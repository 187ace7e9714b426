"""The text that names a connection, `[λ]family[+norm][:option=value,...]`, and the module that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rskip.connections.connection import Connection
from rskip.connections.norms import NORMS, check_features
from rskip.connections.registry import Family, Fold, OptionValue, find_family, plain_number
from rskip.settings.nearest import did_you_mean
from rskip.settings.paper import Paper

Options = tuple[tuple[str, OptionValue], ...]

_SPEC = re.compile(
    r"(?P<factor>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)?"
    r"(?P<family>[a-z][a-z_]*)"
    r"(?:\+(?P<norm>[^:+]*))?"
    r"(?::(?P<options>.*))?"
)


@dataclass(frozen=True)
class ConnectionSpec:
    """A connection's name in parts, checked and canonical: equal connections have equal specs.

    family: xskip, rskip, wskip, sas, highway, prenorm, or one that was registered.
    factor: the λ before it; None where the family takes none.
    norm: ln, rms or bn, the family's default where none is given; None for no normalisation.
    options: (name, value) pairs that differ from their defaults, sorted.

    `str(spec)` is the text that parses back to it. ValueError for whatever a family does not take, naming
    what is valid and the nearest valid spec.
    """

    family: str
    factor: float | None = None
    norm: str | None = None
    options: Options = ()

    def __post_init__(self) -> None:
        factor, rest = _write_number(self.factor), _write_rest(self.norm, self.options)
        family = find_family(self.family, before=factor, after=rest)
        object.__setattr__(self, "factor", _check_factor(family, self.factor, rest))
        object.__setattr__(
            self, "norm", _check_norm(family, _write_number(self.factor), self.norm, self.options)
        )
        object.__setattr__(self, "options", _check_options(family, self.options))
        if family.check is not None:
            family.check(self)

    def __str__(self) -> str:
        norm = None if self.norm == find_family(self.family).default_norm else self.norm
        return _write_number(self.factor) + self.family + _write_rest(norm, self.options)

    @property
    def slug(self) -> str:
        """The spec in letters, digits, `_` and `-`, for names of files and runs: `0.5xskip` is `0p5xskip`."""
        return _NUMBER.sub(_number_slug, str(self)).translate(str.maketrans("+:=,", "_-_-"))

    @property
    def settings(self) -> dict[str, Any]:
        """What the family's class is built with: factor, normalisation and every option, also by default."""
        family = find_family(self.family)
        settings: dict[str, Any] = {name: option.default for name, option in family.options.items()}
        settings.update(self.options)
        if family.factor is not None:
            settings[family.factor.word] = self.factor
        if family.norms != (None,):
            settings["norm"] = self.norm
        return settings

    @property
    def scale(self) -> float | None:
        """xskip's λ, by which x is multiplied; None for other families."""
        return self.settings.get("scale")

    @property
    def recursion(self) -> int | None:
        """rskip's λ, how often x is added; None for other families."""
        return self.settings.get("recursion")

    @property
    def closing_norm(self) -> str | None:
        """The normalisation that closes a stack of such blocks (see build_norm); None where none does."""
        return self.norm if find_family(self.family).closing_norm else None

    @property
    def paper(self) -> Paper:
        """The paper that the connection is from."""
        return find_family(self.family).paper

    @property
    def fold(self) -> Fold | None:
        """The simpler connection that it becomes for inference; None where there is none."""
        return find_family(self.family).fold(self)


def parse_connection(text: str) -> ConnectionSpec:
    """Reads `[λ]family[+norm][:option=value,...]`, in any case.

    ValueError for text that names no connection, with what is valid and the nearest known spec.
    """
    match = _SPEC.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if match is None:
        form = "[λ]family[+norm][:option=value,...], for example 2rskip+ln or sas:gate=single"
        raise ValueError(f"{text!r} is not a connection: write {form}")
    options: dict[str, OptionValue] = {}
    for item in match["options"].split(",") if match["options"] is not None else ():
        name, _, value = (part.strip() for part in item.partition("="))
        if not (name and value):
            raise ValueError(
                f"{item!r} in {text!r} is not an option: write option=value, separated by commas"
            )
        if name in options:
            raise ValueError(f"option {name!r} is given twice in {text!r}")
        options[name] = value
    factor = None if match["factor"] is None else float(match["factor"])
    return ConnectionSpec(match["family"], factor, match["norm"], tuple(options.items()))


def build_connection(spec: str | ConnectionSpec, features: int, *, feature_dim: int = -1) -> Connection:
    """The connection that `spec` names, for `features` features along `feature_dim`: -1 on text, 1 on images.

    ValueError for a spec that is not valid, for bn on text and for prenorm on images.
    """
    if isinstance(spec, str):
        spec = parse_connection(spec)
    check_features(features, feature_dim)
    family = find_family(spec.family)
    if family.text_only and feature_dim != -1:
        raise ValueError(f"{spec} is for text (feature_dim=-1); choose another connection for images")
    return family.connection(features, feature_dim=feature_dim, **spec.settings)


def _check_factor(family: Family, factor: float | None, rest: str) -> float | None:
    if family.factor is None:
        if factor is not None:
            raise ValueError(f"{family.name} takes no λ; write {family.name + rest!r}")
        return None
    valid = "an integer of at least 1" if family.factor.integer else "a finite number above 0"
    if factor is None:
        raise ValueError(f"{family.name} needs its λ, {valid}, before its name: {'1' + family.name + rest!r}")
    if not math.isfinite(factor) or factor <= 0:
        raise ValueError(f"λ of {family.name} must be {valid}, not {factor:g}")
    if family.factor.integer and factor != int(factor):
        near = f"{max(1, round(factor))}{family.name}{rest}"
        raise ValueError(f"λ of {family.name} must be {valid}, not {factor:g} (did you mean {near!r}?)")
    return plain_number(factor)


def _check_norm(family: Family, factor: str, norm: str | None, options: Options) -> str | None:
    name, rest = factor + family.name, _write_rest(None, options)
    if norm is None and family.default_norm is not None:
        return family.default_norm
    if norm in family.norms:
        return norm
    named = [valid for valid in family.norms if valid is not None]
    if norm is None:
        reason = family.without_norm.format(factor=factor) or f"{name} needs a normalisation"
        raise ValueError(f"{reason}; write {' or '.join(f'{name}+{valid}{rest}' for valid in named)}")
    if not named:
        raise ValueError(f"{family.name} takes no normalisation, not {norm!r}; write {name + rest!r}")
    problem = f"{family.name} does not take normalisation" if norm in NORMS else "unknown normalisation"
    suggestion = did_you_mean(norm, named, before=f"{name}+", after=rest)
    raise ValueError(f"{problem} {norm!r}{suggestion}; {family.name} takes {', '.join(named)}")


def _check_options(family: Family, options: Options) -> Options:
    different = []
    for name, value in sorted(options):
        if name not in family.options:
            valid = ", ".join(sorted(family.options)) or "no options"
            suggestion = did_you_mean(name, family.options)
            raise ValueError(f"unknown option {name!r}{suggestion}; {family.name} takes {valid}")
        try:
            read = family.options[name].read(_write_value(value))
        except ValueError as error:
            raise ValueError(f"{name} of {family.name} {error}") from None
        if read != family.options[name].default:
            different.append((name, read))
    return tuple(different)


def _write_rest(norm: str | None, options: Iterable[tuple[str, OptionValue]]) -> str:
    listed = ",".join(f"{name}={_write_value(value)}" for name, value in options)
    return (f"+{norm}" if norm is not None else "") + (f":{listed}" if listed else "")


def _write_number(value: float | None) -> str:
    return "" if value is None else str(plain_number(value))


def _write_value(value: OptionValue) -> str:
    return str(value).lower()


_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]\d+)?")


def _number_slug(match: re.Match[str]) -> str:
    return match[0].replace(".", "p").replace("-", "m").replace("+", "")
