"""Connection strings (specs), `[λ]family[+norm][:option=value,...]`. They need no PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rskip.formulas.folds import Fold, fold_of
from rskip.formulas.parameters import NORMS_OF_IMAGES, NORMS_OF_TEXT, OptionValue, plain_number
from rskip.formulas.registry import Family, UnknownFamily, find_family, usual_spec
from rskip.settings.errors import SettingError, did_you_mean, shown
from rskip.settings.paper import Paper

Options = tuple[tuple[str, OptionValue], ...]
_LONGEST = 500  # maximum number of characters in a spec
_FORM = "[λ]family[+norm][:option=value,...], such as 2rskip+ln or sas:gate=single"
_FEATURE_MAPS = "feature maps (ResNets, feature_dim=1)"
_SEQUENCES = "sequences (text, patches of a ViT; feature_dim=-1)"
_PASSES = {"x": "", "streams": " passes on several streams and", "history": " passes on earlier layers' outputs and"}
_SPEC = re.compile(
    r"(?P<factor>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)?"
    r"(?P<family>[a-z][a-z0-9_]*)"
    r"(?:\+(?P<norm>[^:+]*))?"
    r"(?::(?P<options>.*))?"
)
_NORM_WORDS = {"layernorm": "ln", "rmsnorm": "rms", "batchnorm": "bn", "groupnorm": "gn1"}
_SLUG_NORM = re.compile(r"_(?=(?:ln|rms|gn1|bn)(?:$|:))")
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[+-]\d+)?")


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
        for name, (other, value) in family.connection.only_with.items():
            if name in dict(self.options) and self.settings[other] != value:
                raise wrong(str(self), f"{name} only with {other}={str(value).lower()}", advice=f"leave {name} out")
        if expected := family.connection.check(self.settings):
            raise wrong(str(self), expected)
        if len(str(self)) > _LONGEST:
            raise wrong(str(self), f"at most {_LONGEST} characters")

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
        return find_family(self.family).settings_of(self.factor, self.norm, self.options)

    @property
    def closing_norm(self) -> str | None:
        """The normalisation that closes a stack of such blocks (see `build_norm`), or None."""
        return self.norm if find_family(self.family).closes(self.settings) else None

    @property
    def paper(self) -> Paper:
        """The paper that introduced the connection."""
        return find_family(self.family).paper

    @property
    def fold(self) -> Fold | None:
        """The simpler connection that it becomes for inference, or None."""
        found = fold_of(find_family(self.family), self.settings)
        return None if found is None or found.connection == str(self) else found


def parse_connection(text: str | ConnectionSpec) -> ConnectionSpec:
    """Reads a connection string, `[λ]family[+norm][:option=value,...]`, in upper or lower case. A spec stays as it is.

    :raises SettingError: named `connection`: the text is not valid. The message says what is, with the nearest spec.
    """
    if isinstance(text, ConnectionSpec):
        return text
    try:
        return _read_spec(text)
    except SettingError as error:
        near = _differently_written(text)
        if near is None and isinstance(text, str) and not isinstance(error, UnknownFamily):
            near = usual_spec(text[:_LONGEST])
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
            return str(_read_spec(candidate))
        except SettingError:
            continue
    return None


def _read_spec(text: object) -> ConnectionSpec:
    match = _SPEC.fullmatch(text.strip().lower()) if isinstance(text, str) and len(text) <= _LONGEST else None
    if match is None:
        raise wrong(text, _FORM)
    options: list[tuple[str, OptionValue]] = []
    for item in match["options"].split(",") if match["options"] is not None else ():
        name, _, value = (part.strip() for part in item.partition("="))
        if not (name and value):
            raise wrong(text, f"option=value, separated by commas, not {item!r}")
        options.append((name, value))
    factor = None if match["factor"] is None else float(match["factor"])
    return ConnectionSpec(match["family"], factor, match["norm"], tuple(options))


def check_connection(spec: str | ConnectionSpec, feature_dim: int) -> None:
    """Checks that a spec works on sequences, such as text (feature_dim=-1), or on feature maps of images (1).

    :raises SettingError: named `connection`: gn1 or bn on sequences; a family that works only on sequences.
    """
    spec = parse_connection(spec)
    family = find_family(spec.family)
    if feature_dim == -1:
        if spec.norm in NORMS_OF_IMAGES:
            raise wrong(str(spec), NORMS_OF_TEXT)
        return
    if not family.works_on_images(spec.settings):
        which = f"{spec if 'images' in family.works_on else family.name}{_PASSES[family.passes]}"
        raise wrong(str(spec), f"a connection for {_FEATURE_MAPS}; {which} works only on {_SEQUENCES}")


def works_on(spec: str | ConnectionSpec, feature_dim: int) -> bool:
    """Whether `check_connection` accepts the spec."""
    try:
        check_connection(spec, feature_dim)
    except SettingError:
        return False
    return True


def wrong(spec: object, expected: str, *, advice: str = "") -> SettingError:
    """The error for a spec that is not what is expected here."""
    return SettingError.of_value("connection", spec, expected, advice=advice)


def _check_factor(family: Family, factor: float | None, rest: str) -> float | None:
    name, given, taken = family.name, _write_number(factor) + family.name + rest, family.factor
    if taken is None:
        if factor is not None:
            raise wrong(given, f"{name} without a λ before it", advice=f"write {shown(name + rest)}")
        return None
    if factor is None:
        norm = "" if rest.startswith("+") or None in family.norms or family.default_norm else "+ln"
        raise wrong(given, f"a λ before {name}: {taken.values}", advice=f"write {'1' + name + norm + rest!r}")
    if not taken.takes(factor):
        raise wrong(given, f"{taken.values} as λ, not {factor:g}")
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
        raise wrong(given, f"a normalisation, {' or '.join(named)}", advice=f"write '{name}+{named[0]}{rest}'")
    if not named:
        raise wrong(given, f"{family.name} without a normalisation", advice=f"write {name + rest!r}")
    meant = _NORM_WORDS.get(re.sub("[^a-z0-9]", "", norm), norm)
    suggestion = did_you_mean(meant, named, before=f"{name}+", after=rest)
    raise wrong(given, f"{family.name} with {' or '.join(named)}{suggestion}")


def _check_options(family: Family, given: str, options: Options) -> Options:
    different = []
    names = [name for name, _ in options]
    for name, value in sorted(options, key=itemgetter(0)):
        if names.count(name) > 1:
            raise wrong(given, f"option {shown(name)} only once")
        if name not in family.options:
            options_of = f"options of {family.name} ({', '.join(sorted(family.options))})"
            valid = options_of if family.options else f"{family.name} without options"
            raise wrong(given, f"{valid}, not {shown(name)}{did_you_mean(name, family.options)}")
        try:
            read = family.options[name].read(str(value).lower())
        except SettingError as error:
            raise wrong(given, f"{name} to be {error.expected}") from None
        if read != family.options[name].default:
            different.append((name, read))
    return tuple(different)


def _write_rest(norm: str | None, options: Iterable[tuple[str, OptionValue]]) -> str:
    listed = ",".join(f"{name}={str(value).lower()}" for name, value in options)
    return (f"+{norm}" if norm is not None else "") + (f":{listed}" if listed else "")


def _write_number(value: float | None) -> str:
    return "" if value is None else str(plain_number(value))


def _number_slug(match: re.Match[str]) -> str:
    return match[0].replace(".", "p").replace("-", "m").replace("+", "")
