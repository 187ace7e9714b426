"""Connection strings (specs), `[λ]family[+norm][:option=value,...]`, and the modules that they name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rskip.connections.connection import HOST_NEEDS, Connection, HostNeed, StackConnection
from rskip.connections.norms import NORMS_OF_IMAGES, NORMS_OF_TEXT, check_features, set_eps
from rskip.connections.options import LEAST, MOST, OptionValue, plain_number
from rskip.connections.place import Place
from rskip.connections.registry import Family, Fold, find_family
from rskip.settings.errors import SettingError, did_you_mean, shown
from rskip.settings.paper import Paper

Options = tuple[tuple[str, OptionValue], ...]
_LONGEST = 500  # maximum number of characters in a spec
_FORM = "[λ]family[+norm][:option=value,...], such as 2rskip+ln or sas:gate=single"
_FEATURE_MAPS = "feature maps (ResNets, feature_dim=1)"
_SEQUENCES = "sequences (text, patches of a ViT; feature_dim=-1)"
_PASSES = {"x": "", "streams": " passes on several streams and", "history": " passes on earlier layers' outputs and"}
_MOST = 100  # maximum of an integer λ, which is a number of normalisations
_IN_WORDS: dict[HostNeed, str] = {
    "inner_norms": "normalise inside the branch (connection.inner_norms)",
    "scales_heads": "scale the branch's heads (connection.scales_heads)",
    "branch_gain": "scale the branch's initial weights (connection.branch_gain)",
    "profile": "set initial values with a pass over data (admin_profiling)",
    "stack": "open and close its stack (build_stack_connection)",
}

_SPEC = re.compile(
    r"(?P<factor>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)?"
    r"(?P<family>[a-z][a-z0-9_]*)"
    r"(?:\+(?P<norm>[^:+]*))?"
    r"(?::(?P<options>.*))?"
)
_NORM_WORDS = {"layernorm": "ln", "rmsnorm": "rms", "batchnorm": "bn", "groupnorm": "gn1"}
_SLUG_NORM = re.compile(r"_(?=(?:ln|rms|gn1|bn)(?:$|:))")


@dataclass(frozen=True)
class ConnectionSpec:
    """A connection string in parts, checked and canonical: equal connections have equal specs.

    `str(spec)` is the connection string, which `parse_connection` reads.

    :param family: name of a registered family, such as xskip or rskip (`list_connections`).
    :param factor: the λ before the name; None if the family takes none.
    :param norm: ln, rms, gn1 or bn; if None, the family's default or no normalisation.
    :param options: (name, value) pairs that differ from their defaults, sorted.
    :raises SettingError: named `connection`: the family does not take one of the parts. The message says what is valid,
        with the nearest valid spec.
    """

    family: str
    factor: float | None = None
    norm: str | None = None
    options: Options = ()

    def __post_init__(self) -> None:
        factor, rest = _write_number(self.factor), _write_rest(self.norm, self.options)
        family = find_family(self.family, before=factor, after=rest)
        object.__setattr__(self, "factor", _check_factor(family, self.factor, rest))
        object.__setattr__(self, "norm", _check_norm(family, factor, self.norm, self.options))
        object.__setattr__(self, "options", _check_options(family, factor + self.family + rest, self.options))
        for name, (other, value) in family.only_with.items():
            if name in dict(self.options) and self.settings[other] != value:
                raise _wrong(str(self), f"{name} only with {other}={value}", advice=f"leave {name} out")
        family.check(self)
        if len(str(self)) > _LONGEST:
            raise _wrong(str(self), f"at most {_LONGEST} characters")

    def __str__(self) -> str:
        norm = None if self.norm == find_family(self.family).default_norm else self.norm
        return _write_number(self.factor) + self.family + _write_rest(norm, self.options)

    @property
    def slug(self) -> str:
        """The spec in letters, digits, `_` and `-`, for names of files and runs: `0.5xskip` becomes `0p5xskip`."""
        return _NUMBER.sub(_number_slug, str(self)).translate(str.maketrans("+:=,", "_-_-"))

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments for the family's class: factor, normalisation and every option, including defaults."""
        family = find_family(self.family)
        settings: dict[str, Any] = {name: option.default for name, option in family.options.items()}
        settings.update(self.options)
        if family.factor is not None:
            settings[family.factor.word] = self.factor
        if family.norms != (None,):
            settings["norm"] = self.norm
        return settings

    @property
    def closing_norm(self) -> str | None:
        """The normalisation that closes a stack of such blocks (see `build_norm`), or None."""
        closes = find_family(self.family).closing_norm
        return self.norm if (closes(self) if callable(closes) else closes) else None

    @property
    def paper(self) -> Paper:
        """The paper that introduced the connection."""
        return find_family(self.family).paper

    @property
    def fold(self) -> Fold | None:
        """The simpler connection that it becomes for inference, or None."""
        return find_family(self.family).fold(self)


def parse_connection(text: str) -> ConnectionSpec:
    """Reads a connection string, `[λ]family[+norm][:option=value,...]`, in upper or lower case.

    :raises SettingError: named `connection`: the text is not valid. The message says what is, with the nearest spec.
    """
    try:
        return _read_spec(text)
    except SettingError as error:
        near = _differently_written(text)
        if near is None:
            raise
        raise type(error).of_value("connection", text, _FORM, advice=f"did you mean {near!r}?") from None


def _differently_written(text: object) -> str | None:
    """The spec that differs from `text` only by spaces, hyphens, or `_` in place of `+`, as in a slug; None: none."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    plain = re.sub(r"\s+|(?<=[a-z])-(?=[a-z])", "", text.lower())
    for candidate in (plain, _SLUG_NORM.sub("+", plain)):
        try:
            spec = _read_spec(candidate)
        except SettingError:
            continue
        return str(spec)
    return None


def _read_spec(text: object) -> ConnectionSpec:
    match = _SPEC.fullmatch(text.strip().lower()) if isinstance(text, str) and len(text) <= _LONGEST else None
    if match is None:
        raise _wrong(text, _FORM)
    options: list[tuple[str, OptionValue]] = []
    for item in match["options"].split(",") if match["options"] is not None else ():
        name, _, value = (part.strip() for part in item.partition("="))
        if not (name and value):
            raise _wrong(text, f"option=value, separated by commas, not {item!r}")
        options.append((name, value))
    factor = None if match["factor"] is None else float(match["factor"])
    return ConnectionSpec(match["family"], factor, match["norm"], tuple(options))


def build_connection(
    spec: str | ConnectionSpec,
    features: int,
    *,
    feature_dim: int = -1,
    place: Place | None = None,
    host_supplies: HostNeed | Collection[HostNeed] = (),
    eps: float | None = None,
) -> Connection:
    """Builds the connection that `spec` names.

    :param spec: connection string, such as `2rskip+ln`, or a ConnectionSpec.
    :param features: number of features C of x and f.
    :param feature_dim: dimension of the features: -1 for sequences such as text (B, T, C), 1 for feature maps of
        images (N, C, H, W).
    :param place: the block position, for families whose `needs_place` is true.
    :param host_supplies: those of the connection's `host_needs` that the model supplies, out of HOST_NEEDS. A
        UserWarning names the others. Pass HOST_NEEDS if nothing is trained, as in an analysis.
    :param eps: value that every normalisation inside adds to the variance; None: 1e-5, or the choice of your own class.
    :raises SettingError: named `connection`: the spec is not valid, `check_connection` refuses it, or the family needs
        `place` and got None.
    """
    if not isinstance(spec, ConnectionSpec):
        spec = parse_connection(spec)
    check_features(features, feature_dim)
    check_connection(spec, feature_dim)
    family = find_family(spec.family)
    settings = spec.settings
    if family.needs_place:
        if place is None:
            expected = f"a block position, which {family.name} depends on"
            example = 'Place("encoder", "ffn", sublayer=2, sublayers=12, layer=1, layers=6, other_layers=6)'
            raise _wrong(str(spec), expected, advice=f"pass place={example}")
        settings["place"] = place
    connection = family.connection(features, feature_dim=feature_dim, **settings)
    connection.spec = str(spec)
    if eps is not None:
        set_eps(connection, eps)
    supplied = read_supplies(host_supplies)
    if missing := [need for need in connection.host_needs if need not in supplied]:
        advice = f"do so and pass host_supplies={missing}, or choose another connection"
        warnings.warn(f"connection {spec} needs its model to {described_needs(missing)}: {advice}", stacklevel=2)
    return connection


def read_supplies(host_supplies: HostNeed | Collection[HostNeed]) -> Collection[HostNeed]:
    """The needs that `host_supplies` names.

    :raises SettingError: it is not one of HOST_NEEDS or a list of them.
    """
    needs = (host_supplies,) if isinstance(host_supplies, str) else host_supplies
    for need in needs:
        if need not in HOST_NEEDS:
            expected = f"a list of any of {', '.join(HOST_NEEDS)}{did_you_mean(need, HOST_NEEDS)}"
            raise SettingError.of_value("host_supplies", need, expected)
    return needs


def described_needs(needs: Iterable[HostNeed]) -> str:
    """What a model must do to meet these `host_needs`, as words for a message."""
    return " and to ".join(_IN_WORDS[need] for need in needs)


def build_stack_connection(spec: str | ConnectionSpec, features: int, *, eps: float | None = None) -> StackConnection:
    """Builds the module that opens and closes a stack of `spec`'s blocks, on sequences.

    The arguments are those of `build_connection`.

    :raises SettingError: named `connection`: the spec is not valid.
    """
    if not isinstance(spec, ConnectionSpec):
        spec = parse_connection(spec)
    check_features(features, -1)
    built = find_family(spec.family).stack(features, **spec.settings)
    if eps is not None:
        set_eps(built, eps)
    return built


def check_connection(spec: str | ConnectionSpec, feature_dim: int) -> None:
    """Checks that a spec works on sequences, such as text (feature_dim=-1), or on feature maps of images (1).

    :raises SettingError: named `connection`: gn1 or bn on sequences; a family that works only on sequences.
    """
    if not isinstance(spec, ConnectionSpec):
        spec = parse_connection(spec)
    family = find_family(spec.family)
    if feature_dim == -1:
        if spec.norm in NORMS_OF_IMAGES:
            raise _wrong(str(spec), NORMS_OF_TEXT)
        return
    if family.text_only(spec) if callable(family.text_only) else family.text_only:
        which = f"{spec if callable(family.text_only) else family.name}{_PASSES[family.passes]}"
        raise _wrong(str(spec), f"a connection for {_FEATURE_MAPS}; {which} works only on {_SEQUENCES}")


def works_on(spec: str | ConnectionSpec, feature_dim: int) -> bool:
    """Whether `check_connection` accepts the spec."""
    try:
        check_connection(spec, feature_dim)
    except SettingError:
        return False
    return True


def _wrong(spec: object, expected: str, *, advice: str = "") -> SettingError:
    return SettingError.of_value("connection", spec, expected, advice=advice)


def _check_factor(family: Family, factor: float | None, rest: str) -> float | None:
    name, given = family.name, _write_number(factor) + family.name + rest
    if family.factor is None:
        if factor is not None:
            raise _wrong(given, f"{name} without a λ before it", advice=f"write {shown(name + rest)}")
        return None
    valid = family.factor.values
    if factor is None:
        norm = "" if rest.startswith("+") or None in family.norms or family.default_norm else "+ln"
        raise _wrong(given, f"a λ before {name}: {valid}", advice=f"write {'1' + name + norm + rest!r}")
    if not LEAST <= factor <= MOST or family.factor.integer and (factor > _MOST or factor != int(factor)):
        raise _wrong(given, f"{valid} as λ, not {factor:g}")
    return plain_number(factor)


def _check_norm(family: Family, factor: str, norm: str | None, options: Options) -> str | None:
    name, rest = factor + family.name, _write_rest(None, options)
    given = name + _write_rest(norm, options)
    if norm is None and family.default_norm is not None:
        return family.default_norm
    if norm in family.norms:
        return norm
    named = [valid for valid in family.norms if valid is not None]
    if norm is None:
        raise _wrong(given, f"a normalisation, {' or '.join(named)}", advice=f"write '{name}+{named[0]}{rest}'")
    if not named:
        raise _wrong(given, f"{family.name} without a normalisation", advice=f"write {name + rest!r}")
    meant = _NORM_WORDS.get(re.sub("[^a-z0-9]", "", norm), norm)
    suggestion = did_you_mean(meant, named, before=f"{name}+", after=rest)
    raise _wrong(given, f"{family.name} with {' or '.join(named)}{suggestion}")


def _check_options(family: Family, given: str, options: Options) -> Options:
    different = []
    names = [name for name, _ in options]
    for name, value in sorted(options, key=itemgetter(0)):
        if names.count(name) > 1:
            raise _wrong(given, f"option {shown(name)} only once")
        if name not in family.options:
            options_of = f"options of {family.name} ({', '.join(sorted(family.options))})"
            valid = options_of if family.options else f"{family.name} without options"
            raise _wrong(given, f"{valid}, not {shown(name)}{did_you_mean(name, family.options)}")
        try:
            read = family.options[name].read(_write_value(value))
        except SettingError as error:
            raise _wrong(given, f"{name} to be {error.expected}") from None
        if read != family.options[name].default:
            different.append((name, read))
    return tuple(different)


def _write_rest(norm: str | None, options: Iterable[tuple[str, OptionValue]]) -> str:
    listed = ",".join(f"{name}={_write_value(value)}" for name, value in options)
    return (f"+{norm}" if norm is not None else "") + (f":{listed}" if listed else "")


def _write_number(value: float | None) -> str:
    return "" if value is None else str(plain_number(value))


def _write_value(value: object) -> str:
    return str(value).lower()


_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]\d+)?")


def _number_slug(match: re.Match[str]) -> str:
    return match[0].replace(".", "p").replace("-", "m").replace("+", "")
