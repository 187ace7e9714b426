"""What a spec of a family can say, read from the parameters of its class's constructor. It needs no PyTorch.

    def __init__(self, *, scale: Annotated[float, Factor()], norm: AnyNorm | None, branch_scale: Positive = 1): ...

- A number annotated with `Factor()` is the λ before the family's name.
- `norm: Literal["ln", "rms"]`: the normalisations after the `+`. It is optional with a default or `| None`.
- `place`, without a default: models pass the block position, a `Place`.
- Parameters with a default and one of these annotations are options: `bool`, a `Literal` of words, `int` or `float`, or
  a number with bounds, such as `Annotated[int, Bounds(1, 64)]`. `:param NAME:` in the class's docstring is the meaning.
"""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from rskip.settings.errors import SettingError, did_you_mean

OptionValue = float | bool | str

LEAST, MOST = 1e-6, 1e6  # bounds of positive numbers: outside, float32 loses x or f, or overflows
NORMS = ("ln", "rms", "gn1", "bn")
NORMS_OF_IMAGES = ("gn1", "bn")  # not available on sequences
NORMS_OF_TEXT = (
    "ln or rms: bn and gn1 are for feature maps (feature_dim=1), on sequences their statistics would count the padding"
)
_MEANING = re.compile(r"^:param (\w+): (.+(?:\n +.+)*)", re.MULTILINE)  # in a docstring
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MOST_NORMS = 100  # maximum of an integer λ, which is a number of normalisations

AnyNorm = Literal["ln", "rms", "gn1", "bn"]
TextNorm = Literal["ln", "rms"]


@dataclass(frozen=True)
class Bounds:
    """The minimum and maximum of a number: `rank: Annotated[int, Bounds(1, 4096)] = 16`."""

    ge: float = -MOST
    le: float = MOST


Positive = Annotated[float, Bounds(ge=LEAST)]


@dataclass(frozen=True)
class Factor:
    """Marks the parameter that is the λ before a family's name: an `int` from 1 to 100, or a `float` from 1e-6 to 1e6.

    :param word: name of the parameter, set by `read_parameters`; `integer`: whether it is an `int`.
    """

    word: str = ""
    integer: bool = False

    @property
    def values(self) -> str:
        """Its possible values in words."""
        return f"an integer from 1 to {_MOST_NORMS}" if self.integer else f"a number from {LEAST:g} to {MOST:g}"

    def takes(self, factor: float) -> bool:
        """Whether it may be this number."""
        if self.integer and (factor > _MOST_NORMS or factor != int(factor)):
            return False
        return LEAST <= factor <= MOST


@dataclass(frozen=True)
class Option:
    """An option of a family.

    :param kind: bool, int, float, or str (one of `words`).
    :param words: the values of a text option, in lower case, without spaces or commas.
    :param meaning: its meaning, for readers.
    """

    kind: type
    default: OptionValue
    bounds: Bounds = Bounds()
    words: tuple[str, ...] = ()
    meaning: str = ""

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


def read_parameters(cls: type) -> dict[str, Any]:
    """The parameters of the class's constructor, as the `Family` of the class has them.

    :raises SettingError: `norm` is annotated with other words than ln, rms, gn1 and bn.
    """
    options: dict[str, Option] = {}
    found: dict[str, Any] = {"options": options}
    meanings = dict(_MEANING.findall(documented(cls)))
    for name, parameter in inspect.signature(cls).parameters.items():
        given, default = _evaluated(parameter.annotation, cls), parameter.default
        kind, marks = (get_args(given)[0], get_args(given)[1:]) if get_origin(given) is Annotated else (given, ())
        if any(isinstance(mark, Factor) for mark in marks):
            found["factor"] = Factor(name, kind is int)
        elif name == "norm":
            found |= {"norms": _norms(cls, kind), "default_norm": None if default is parameter.empty else default}
        elif name == "place":
            found |= {"takes_place": True, "needs_place": default is parameter.empty}
        elif default is not parameter.empty and name != "feature_dim" and _OPTION_NAME.fullmatch(name):
            bounds = next((mark for mark in marks if isinstance(mark, Bounds)), Bounds())
            meaning = " ".join(meanings.get(name, "").split()).removesuffix(".")
            if get_origin(kind) is Literal:
                options[name] = Option(str, default, words=get_args(kind), meaning=meaning)
            elif kind in (bool, int, float):
                options[name] = Option(kind, default, bounds, meaning=meaning)
    return found


def documented(cls: type) -> str:
    """The class's own docstring without indentation."""
    return inspect.cleandoc(cls.__doc__ or "")


def _norms(cls: type, kind: Any) -> tuple[str | None, ...]:
    optional = NoneType in get_args(kind)
    words = next((each for each in get_args(kind) if each is not NoneType), None) if optional else kind
    found = get_args(words) if get_origin(words) is Literal else ()
    if not found or not set(NORMS).issuperset(found):
        expected = f"a Literal of {', '.join(NORMS)}, such as TextNorm or AnyNorm of rskip.connections"
        raise SettingError.of_value(f"annotation of norm in {cls.__name__}", kind, expected)
    return (None, *found) if optional else found


def _evaluated(annotation: Any, cls: type) -> Any:
    """Evaluates an annotation that is a string (`from __future__ import annotations`); None if that fails."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.getattr_static(cls, "__init__").__globals__)
    except Exception:  # a name that only type checkers import, so not the annotation of an option
        return None


def plain_number(value: float) -> float:
    """Converts whole numbers to int, so that 2.0 is written 2, unless they are too large to be exact."""
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else float(value)
