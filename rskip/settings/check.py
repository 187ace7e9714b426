"""Converts plain values to typed settings. Only whole numbers are converted (to floats); unknown keys are errors."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import repeat
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as types

from rskip.settings.errors import UNKNOWN, SettingError, joined, nearest, shown_key

T = TypeVar("T")

_TOO_LARGE = 2**64  # limit of whole numbers: the largest settings are PyTorch seeds


def convert(content: Any, kind: type[T], *, name: str = "", source: str = "") -> T:
    """`content` as `kind`: a msgspec Struct, a dataclass, or any type that msgspec converts to.

    A Struct or a dataclass accepts only the keys of its fields. A TypedDict also accepts other keys and keeps their
    values unchanged.

    Constraints in `msgspec.Meta` are checked (`ge=1`, `pattern=...`). Floats must be finite, and whole numbers have at
    most 64 bits. Meta's `extra` may hold `expected`, the words for an error, and `also`, further floats that are
    allowed. A type's own check, `__post_init__`, may raise SettingError too.

    :param name: the setting's name; in errors the names of its parts begin with it.
    :param source: the origin of the content, such as the path of a file.
    :raises SettingError: a value is wrong, or a key is unknown or missing. Names the first one.
    """
    try:
        return _convert(content, _type_info(kind), name)  # type: ignore[arg-type]
    except SettingError as error:
        if error.problem == UNKNOWN and (meant := place_of(error.name.rpartition(".")[2], kind, content, name)):
            error = SettingError(error.name, UNKNOWN, advice=f"did you mean {meant}?")
        raise (error.within(source=source) if source else error) from None


def check(settings: Any) -> None:
    """Checks every field of a Struct or dataclass. Called by the `__post_init__` of settings that are made in Python.

    Values are converted as when they are read from a file: where the type says so, whole numbers become floats, and
    lists become tuples.

    :raises SettingError: a value is wrong. Names the first one.
    """
    set_field = msgspec.structs.force_setattr if isinstance(settings, msgspec.Struct) else object.__setattr__
    for field in fields_of(type(settings)):
        value = _convert(getattr(settings, field.name), field.type, field.encode_name)
        set_field(settings, field.name, value)


class Checked:
    """Base of dataclasses that check their fields on creation. `convert` leaves the check to them."""

    def __post_init__(self) -> None:
        check(self)


def to_plain(settings: Any) -> Any:
    """Converts settings to plain values as in JSON: keys in the order of the fields, tuples as lists."""
    return msgspec.json.decode(msgspec.json.encode(settings))


def field_names(kind: type) -> list[str]:
    """The keys of a Struct or dataclass."""
    return [field.encode_name for field in fields_of(kind)]


def place_of(key: str, kind: Any, content: Any, name: str = "") -> str:
    """The first setting with this name in the sections of `kind`, such as `train.lr` for `lr`; "" if there is none.

    :param content: the plain values. If they have the key outside any section, their sections are searched too.
    :param name: the name of `kind` itself.
    """
    sections = content if isinstance(content, Mapping) and key in content else {}
    written = (section for section, inner in sections.items() if isinstance(inner, Mapping) and key in inner)
    return next(_places(key, _type_info(kind), name), "") or next((joined(name, each, key) for each in written), "")


def _places(key: str, info: types.Type, name: str) -> Iterator[str]:
    for kind in info.types if isinstance(info, types.UnionType) else (info,):
        while isinstance(kind, types.Metadata):
            kind = kind.type
        if isinstance(kind, (types.StructType, types.DataclassType)):
            if any(field.encode_name == key for field in kind.fields):
                yield joined(name, key)
            for field in kind.fields:
                yield from _places(key, field.type, joined(name, field.encode_name))


def fields_of(kind: Any) -> tuple[types.Field, ...]:
    """The fields of a Struct or dataclass, as msgspec sees them."""
    info = _type_info(kind)
    assert isinstance(info, (types.StructType, types.DataclassType)), kind
    return info.fields


@cache
def _type_info(kind: Any) -> types.Type:
    return types.type_info(kind)


def _convert(value: Any, info: types.Type, name: str, expected: str = "") -> Any:
    if isinstance(info, types.Metadata):
        extra = info.extra or {}
        if isinstance(value, float) and value in extra.get("also", ()):
            return value
        return _convert(value, info.type, name, expected or extra.get("expected", ""))
    if isinstance(info, types.UnionType):
        return _convert_union(value, info, name, expected)
    if isinstance(info, (types.StructType, types.DataclassType, types.TypedDictType)):
        return _convert_fields(value, info, name, expected)
    if isinstance(info, (types.ListType, types.VarTupleType, types.TupleType)):
        return _convert_items(value, info, name, expected)
    if isinstance(info, types.DictType):
        return _convert_entries(value, info, name, expected)
    if isinstance(info, types.AnyType):
        return value
    if isinstance(info, types.FloatType) and type(value) is int:
        value = float(value) if abs(value) < 2**1023 else value
    if not _is_of(value, info):
        near = _hint(value, info)
        raise SettingError.of_value(name, value, (expected or describe(info)) + near)
    return value


def _hint(value: Any, info: types.Type) -> str:
    if type(value) is int and abs(value) >= _TOO_LARGE:
        return ", of at most 64 bits"
    near = nearest(value, map(str, info.values)) if isinstance(info, types.LiteralType) else []
    return f" (did you mean {near[0]}?)" if near else ""


def _convert_union(value: Any, info: types.UnionType, name: str, expected: str) -> Any:
    if value is None and info.includes_none:
        return None
    kinds = [kind for kind in info.types if not isinstance(kind, types.NoneType)]
    if len(kinds) == 1:
        expected = expected or f"{describe(kinds[0])}{', or null' if info.includes_none else ''}"
        return _convert(value, kinds[0], name, expected)
    for kind in kinds:
        try:
            return _convert(value, kind, name)
        except SettingError:
            continue
    raise SettingError.of_value(name, value, expected or describe(info))


def _convert_fields(value: Any, info: Any, name: str, expected: str) -> Any:
    """A mapping as a Struct, a dataclass or a TypedDict, which may have other keys too."""
    named = isinstance(info, types.TypedDictType)
    if not named and isinstance(value, info.cls):
        return value
    if not isinstance(value, Mapping):
        raise _not_a_mapping(name, value, expected)
    fields = {field.encode_name: field for field in info.fields}
    for key in value:
        if not named and key not in fields:
            listed = f"{info.cls.__module__}.{info.cls.__qualname__}"
            raise SettingError.of_unknown_key(name, key, fields, listed=listed)
    for key, field in fields.items():
        if field.required and key not in value:
            raise SettingError(joined(name, key), "is missing", expected=describe(field.type))
    checks_itself = not named and issubclass(info.cls, Checked)
    given = {
        key: item if checks_itself or key not in fields else _convert(item, fields[key].type, joined(name, key))
        for key, item in value.items()
    }
    try:
        return given if named else info.cls(**{fields[key].name: item for key, item in given.items()})
    except SettingError as error:
        raise error.within(name) from None


def _convert_items(value: Any, info: Any, name: str, expected: str) -> Any:
    """A list as a list, or as a tuple of any or of a fixed length."""
    row = isinstance(info, types.TupleType)
    long_enough = isinstance(value, (list, tuple)) and (
        len(value) == len(info.item_types) if row else _long_enough(value, info)
    )
    if not long_enough:
        raise SettingError.of_value(name, value, expected or describe(info))
    kinds = info.item_types if row else repeat(info.item_type)
    items = (_convert(item, kind, f"{name}[{n}]") for n, (item, kind) in enumerate(zip(value, kinds, strict=False)))
    return list(items) if isinstance(info, types.ListType) else tuple(items)


def _convert_entries(value: Any, info: types.DictType, name: str, expected: str) -> Any:
    if not isinstance(value, Mapping):
        raise _not_a_mapping(name, value, expected)
    for key in value:
        if not _is_of(key, info.key_type):
            raise SettingError(joined(name, shown_key(key)), "is a key", expected=describe(info.key_type))
    return {key: _convert(item, info.value_type, joined(name, shown_key(key))) for key, item in value.items()}


def _not_a_mapping(name: str, value: Any, expected: str) -> SettingError:
    if not name:
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        return SettingError("", f"it holds {kind}", expected=expected or "keys and values")
    return SettingError.of_value(name, value, expected or "keys and values")


def _is_of(value: Any, info: types.Type) -> bool:
    if isinstance(info, types.Metadata):
        return _is_of(value, info.type)
    if isinstance(info, types.BoolType):
        return isinstance(value, bool)
    if isinstance(info, types.IntType):
        return type(value) is int and abs(value) < _TOO_LARGE and _in_range(value, info)
    if isinstance(info, types.FloatType):
        return type(value) is float and math.isfinite(value) and _in_range(value, info)
    if isinstance(info, types.LiteralType):
        return any(type(value) is type(each) and value == each for each in info.values)
    if isinstance(info, types.StrType):
        if not isinstance(value, str) or not _long_enough(value, info):
            return False
        return info.pattern is None or _pattern(info.pattern).search(value) is not None
    if isinstance(info, types.CustomType):
        return isinstance(value, info.cls)
    raise AssertionError(f"no check for {info}")


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Compiles a JSON Schema pattern, whose `$` is the very end. Python's `$` also matches before a last line end."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))


_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("ge", operator.ge, "{} or more"),
    ("gt", operator.gt, "more than {}"),
    ("le", operator.le, "at most {}"),
    ("lt", operator.lt, "below {}"),
)


def _in_range(value: Any, info: types.IntType | types.FloatType) -> bool:
    return all((limit := getattr(info, name)) is None or holds(value, limit) for name, holds, _ in _LIMITS)


def _long_enough(value: Any, info: Any) -> bool:
    return info.min_length is None or len(value) >= info.min_length


def _limit(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) and abs(limit) >= 10**4 else f"{limit:g}"


def describe(info: types.Type) -> str:
    """Describes the values of a type, in words that follow "expected"."""
    if isinstance(info, types.Metadata):
        return (info.extra or {}).get("expected") or describe(info.type)
    if isinstance(info, types.UnionType):
        kinds = [describe(kind) for kind in info.types if not isinstance(kind, types.NoneType)]
        if "a number" in kinds and "a whole number" in kinds:
            kinds.remove("a whole number")
        listed = [" or ".join(kinds)] if len(kinds) < 3 else kinds
        *first, last = [*listed, *(["null"] if info.includes_none else [])]
        return f"{', '.join(first)}, or {last}" if first else last
    if isinstance(info, types.LiteralType):
        *first, last = map(str, info.values)
        return f"{', '.join(first)} or {last}" if first else last
    if isinstance(info, (types.IntType, types.FloatType)):
        limits = [words.format(_limit(limit)) for key, _, words in _LIMITS if (limit := getattr(info, key)) is not None]
        word = "a whole number" if isinstance(info, types.IntType) else "a number"
        return ", ".join([word, " and ".join(limits)] if limits else [word])
    if isinstance(info, (types.ListType, types.VarTupleType)):
        return "a list" if isinstance(info.item_type, types.AnyType) else f"a list of {describe(info.item_type)}"
    if isinstance(info, types.TupleType):
        return f"a list of {len(info.item_types)}: {', '.join(map(describe, info.item_types))}"
    if isinstance(info, types.CustomType):
        return f"a {info.cls.__name__}"
    if isinstance(info, types.StrType):
        return "text"
    if isinstance(info, types.BoolType):
        return "true or false"
    return "keys and values"
