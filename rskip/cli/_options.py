"""Makes command-line flags from the fields of a settings type."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as types

from rskip.settings.check import fields_of
from rskip.settings.errors import SettingError

Settings = TypeVar("Settings")


def add_options(parser: Any, kind: type, *, only: Iterable[str] | None = None, defaults: Any = None) -> None:
    """Adds one flag per field of a Struct or dataclass: `max_words` becomes `--max-words`; a bool also gets `--no-...`.

    The help is the field's `msgspec.Meta(description=...)` and its default. The Meta's `extra` may hold another `flag`,
    a `metavar`, and `default`: text on what is chosen if the flag isn't given. A flag that is not given is None in the
    parsed arguments (`given_options`).

    :param parser: an argparse parser or group.
    :param only: fields that get a flag, in this order; None: all fields.
    :param defaults: settings whose values the help shows as defaults.
    """
    fields = _fields(kind)
    for name in fields if only is None else only:
        info = fields[name].type
        plain = _plain(info)
        words = " ".join(part for part in (_description(info), _default(fields[name], defaults)) if part)
        keywords: dict[str, Any] = {"dest": name, "default": None, "help": words.replace("%", "%%")}
        if isinstance(plain, types.BoolType):
            keywords["action"] = argparse.BooleanOptionalAction
        elif isinstance(plain, types.LiteralType):
            keywords["metavar"] = f"{{{','.join(map(str, plain.values))}}}"  # the type refuses others in one line
        else:
            keywords["type"] = {types.IntType: int, types.FloatType: float}.get(type(plain), str)
            metavar = {types.IntType: "N", types.FloatType: "X"}.get(type(plain))
            keywords["metavar"] = _extra(info).get("metavar", metavar)
        parser.add_argument(flag_of(kind, name), **keywords)


def given_options(args: argparse.Namespace, kind: type) -> dict[str, Any]:
    """The fields whose flags the user gave, with their values."""
    names = [name for name in _fields(kind) if getattr(args, name, None) is not None]
    return {name: getattr(args, name) for name in names}


def with_flags(defaults: Settings, args: argparse.Namespace) -> Settings:
    """The settings with the values of the flags that the user gave.

    :raises SettingError: a value is wrong; `main` names the flag.
    """
    kind = type(defaults)
    return kind(**{**{name: getattr(defaults, name) for name in _fields(kind)}, **given_options(args, kind)})


def flag_of(kind: type, name: str) -> str:
    """The flag of a field, with its dashes."""
    field = _fields(kind).get(name)
    flag = _extra(field.type).get("flag") if field is not None else None
    return f"--{flag or name.replace('_', '-')}"


def check_range(args: argparse.Namespace, name: str, least: float, most: float = math.inf) -> None:
    """:raises SettingError: the number of an argument is given and outside of the range."""
    if (value := getattr(args, name)) is not None and not least <= value <= most:
        raise SettingError.of_value(name, value, f"{least} or more" if most == math.inf else f"{least} to {most}")


def refuse_flags(flags: Mapping[str, Any], why: str) -> None:
    """:raises ValueError: a flag is given that other arguments make meaningless; not given: None, False or []."""
    if given := [flag for flag, value in flags.items() if value is not None and value is not False and value != []]:
        raise ValueError(f"{given[0]} {why}: leave it out")


def refuse_options(args: argparse.Namespace, kind: type, why: str) -> None:
    """`refuse_flags` of all fields of a settings type."""
    refuse_flags({flag_of(kind, name): str(value) for name, value in given_options(args, kind).items()}, why)


def _fields(kind: type) -> dict[str, types.Field]:
    return {field.name: field for field in fields_of(kind)}


def _default(field: types.Field, defaults: Any) -> str:
    default = field.default if defaults is None else getattr(defaults, field.name)
    default = _extra(field.type).get("default", default)
    if default in (None, msgspec.NODEFAULT):
        return ""
    if isinstance(default, (bool, float)):
        default = {True: "yes", False: "no"}[default] if isinstance(default, bool) else f"{default:g}"
    return f"(default: {default})"


def _extra(info: types.Type | None) -> dict[str, Any]:
    return {**(info.extra or {}), **_extra(info.type)} if isinstance(info, types.Metadata) else {}


def _description(info: types.Type) -> str:
    if not isinstance(info, types.Metadata):
        return ""
    return (info.extra_json_schema or {}).get("description") or _description(info.type)


def _plain(info: types.Type) -> types.Type:
    """The type without its metadata and without null."""
    if isinstance(info, types.Metadata):
        return _plain(info.type)
    if isinstance(info, types.UnionType):
        return _plain(next(kind for kind in info.types if not isinstance(kind, types.NoneType)))
    return info
