"""Options of a connection: annotated parameters of its class, such as `init: float = 0`, which a spec can set."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from rskip.settings.errors import SettingError, did_you_mean

OptionValue = float | bool | str

LEAST, MOST = 1e-6, 1e6  # bounds of positive numbers: outside, float32 loses x or f, or overflows
OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Bounds:
    """The minimum and maximum of a number: `rank: Annotated[int, Bounds(1, 4096)] = 16`."""

    ge: float = -MOST
    le: float = MOST


Positive = Annotated[float, Bounds(ge=LEAST)]


@dataclass(frozen=True)
class Option:
    """An option of a family.

    :param kind: bool, int, float, or str (one of `words`).
    :param words: the values of a text option, in lower case, without spaces or commas.
    """

    kind: type
    default: OptionValue
    bounds: Bounds = Bounds()
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is float:
            object.__setattr__(self, "default", plain_number(float(self.default)))
        assert all(word == word.lower() and not {*word} & {" ", ","} for word in self.words), "no spec can name them"

    @property
    def values(self) -> str:
        """Its possible values in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return " or ".join(self.words)
        kind = "a whole number" if self.kind is int else "a number"
        return f"{kind} from {_shown(self.bounds.ge)} to {_shown(self.bounds.le)}"

    def read(self, text: str) -> OptionValue:
        """Converts `text` to a value. Raises a `SettingError` without a name for invalid text."""
        words: dict[str, OptionValue] = {"true": True, "false": False} if self.kind is bool else {}
        words.update(zip(self.words, self.words, strict=True))
        if text in words:
            return words[text]
        if not words:
            try:
                number = int(text) if self.kind is int else plain_number(float(text))
            except ValueError:
                number = math.nan
            if self.bounds.ge <= number <= self.bounds.le:
                return number
        raise SettingError.of_value("", text, self.values + did_you_mean(text, self.words))


def _shown(bound: float) -> str:
    """The bound without rounding: 1.999999, not 2."""
    short = f"{bound:g}"
    return short if isinstance(bound, float) and float(short) == bound else str(bound)


def options_of(connection: type, taken: Collection[str]) -> dict[str, Option]:
    """The options that the class's constructor declares, by name.

    An option is a parameter with a default and one of these annotations: `bool`, a `Literal` of words, `int` or
    `float`, or a number with bounds, such as `Annotated[int, Bounds(1, 64)]`.

    :param taken: names of parameters that are not options.
    """
    options = {}
    for name, parameter in inspect.signature(connection).parameters.items():
        if name not in taken and parameter.default is not parameter.empty and OPTION_NAME.fullmatch(name):
            option = _option(_evaluated(parameter.annotation, connection), parameter.default)
            if option is not None:
                options[name] = option
    return options


def _evaluated(annotation: Any, connection: type) -> Any:
    """Evaluates an annotation that is a string (`from __future__ import annotations`); None if that fails."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.getattr_static(connection, "__init__").__globals__)
    except Exception:  # a name that only type checkers import, so not the annotation of an option
        return None


def _option(annotation: Any, default: Any) -> Option | None:
    bounds = Bounds()
    if get_origin(annotation) is Annotated:
        annotation, *further = get_args(annotation)
        bounds = next((each for each in further if isinstance(each, Bounds)), bounds)
    if get_origin(annotation) is Literal:
        words = get_args(annotation)
        return Option(str, default, words=words)
    return Option(annotation, default, bounds) if annotation in (bool, int, float) and default is not None else None


def plain_number(value: float) -> float:
    """Converts whole numbers to int, so that 2.0 is written 2, unless they are too large to be exact."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else float(value)
