"""Plain values to typed settings: what is refused, and how it is named."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from rskip.settings.check import Checked, check, convert, describe, to_plain
from rskip.settings.errors import SettingError

Count = Annotated[int, msgspec.Meta(ge=1)]


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    kind: Literal["step", "one_cycle"] = "step"


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    count: Count
    inner: Inner = Inner()
    several: tuple[Inner, ...] = ()
    named: Mapping[str, Count] = {}
    anything: Mapping[str, Any] | None = None
    text: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", extra={"expected": "a word of small letters"})] = "a"
    word: Annotated[str, msgspec.Meta(min_length=2, description="two letters or more")] = "ab"
    yes: bool = False
    steps: tuple[int, ...] = (1,)
    either: int | Literal["auto"] | None = None
    never_null: int | Literal["auto"] = 1
    perhaps: Inner | None = None
    plain: str | int | float | bool | None = None
    by_word: Mapping[Annotated[str, msgspec.Meta(pattern="^[a-z]+$")], int] = {}

    def __post_init__(self) -> None:
        if self.yes and self.count == 1:
            raise SettingError("yes", "is true", expected="a count of 2 or more beside it", advice="raise count")


def test_converts() -> None:
    content = {"count": 2, "inner": {"share": 0.25}, "several": [{}], "named": {"a": 1}, "steps": [3, 4]}
    made = convert(content, Outer)
    assert made == Outer(count=2, inner=Inner(share=0.25), several=(Inner(),), named={"a": 1}, steps=(3, 4))
    assert convert(to_plain(made), Outer) == made
    assert to_plain(made)["several"] == [{"share": 0.5, "kind": "step"}]
    assert list(to_plain(made)) == list(Outer.__struct_fields__)
    for either in (3, "auto", None):
        assert convert({"count": 1, "either": either, "perhaps": None}, Outer).either == either
    made = convert({"count": 1, "perhaps": {"share": 0.25}, "by_word": {"a": 1}}, Outer)
    assert (made.perhaps, made.by_word) == (Inner(share=0.25), {"a": 1})


class Needed(TypedDict):
    """The keys that are read; the mapping may hold others."""

    row: tuple[int, str]


class Named(Needed, total=False):
    count: Count


def test_a_typed_dict_may_hold_more() -> None:
    content = {"row": [1, "a"], "count": 2, "more": {"x": None}}
    assert convert(content, Named) == {**content, "row": (1, "a")}
    wrong = {
        "row is missing: expected a list of 2: a whole number, text": {"count": 1},
        "row is [1]: expected a list of 2: a whole number, text": {"row": [1]},
        "row[1] is 2: expected text": {"row": [1, 2]},
        "count is 0: expected a whole number, 1 or more": {"row": [1, "a"], "count": 0},
    }
    for said, given in wrong.items():
        with pytest.raises(SettingError) as error:
            convert(given, Named)
        assert str(error.value) == said
    with pytest.raises(SettingError, match=r"^x is 1: expected a Path$"):
        convert(1, Path, name="x")


def test_whole_numbers_may_stand_for_floats() -> None:
    share = convert({"share": 1}, dataclasses.make_dataclass("Any", [("share", float)]), name="x").share
    assert (share, type(share)) == (1.0, float)


WRONG = [
    ({}, "count is missing: expected a whole number, 1 or more"),
    ({"count": "2"}, "count is '2': expected a whole number, 1 or more"),
    ({"count": True}, "count is True: expected a whole number, 1 or more"),
    ({"count": 2.0}, "count is 2.0: expected a whole number, 1 or more"),
    ({"count": 0}, "count is 0: expected a whole number, 1 or more"),
    ({"count": 1, "yes": 1}, "yes is 1: expected true or false"),
    ({"count": 1, "yes": None}, "yes is None: expected true or false"),
    ({"count": 1, "inner": {"share": 1.0}}, "inner.share is 1.0: expected a number, more than 0 and below 1"),
    ({"count": 1, "inner": {"share": float("nan")}}, "inner.share is nan: expected a number, more than 0 and below 1"),
    ({"count": 1, "inner": {"share": float("inf")}}, "inner.share is inf: expected a number, more than 0 and below 1"),
    ({"count": 1, "inner": {"kind": "stp"}}, "inner.kind is 'stp': expected one_cycle or step (did you mean step?)"),
    ({"count": 1, "inner": []}, "inner is []: expected keys and values"),
    ({"count": 1, "innr": 1}, "unknown key innr; did you mean inner?"),
    ({"count": 1, "inner": {"q": 1}}, "unknown key inner.q; known keys: share, kind"),
    ({"count": 1, "a": 1, "named": {"a": 2}}, "unknown key a; did you mean named.a?"),
    ({"count": 1, "several": {}}, "several is {}: expected a list of keys and values"),
    (
        {"count": 1, "several": [{}, {"share": "x"}]},
        "several[1].share is 'x': expected a number, more than 0 and below 1",
    ),
    ({"count": 1, "named": {"a": 0}}, "named.a is 0: expected a whole number, 1 or more"),
    ({"count": 1, "named": {1: 1}}, "named.1 is a key: expected text"),
    ({"count": 1, "anything": 3}, "anything is 3: expected keys and values, or null"),
    ({"count": 1, "text": "A"}, "text is 'A': expected a word of small letters"),
    ({"count": 1, "word": "a"}, "word is 'a': expected text"),
    ({"count": 1, "text": "a\n"}, r"text is 'a\n': expected a word of small letters"),
    ({"count": 1, "steps": [1, "2"]}, "steps[1] is '2': expected a whole number"),
    ({"count": 1, "either": 2.5}, "either is 2.5: expected a whole number or auto, or null"),
    ({"count": 1, "never_null": 2.5}, "never_null is 2.5: expected a whole number or auto"),
    ({"count": 1, "plain": [1]}, "plain is [1]: expected text, a number, true or false, or null"),
    ({"count": 1, "perhaps": {"share": 2}}, "perhaps.share is 2.0: expected a number, more than 0 and below 1"),
    ({"count": 1, "by_word": {"A": 1}}, "by_word.A is a key: expected text"),
    ({"count": 1, "yes": True}, "yes is true: expected a count of 2 or more beside it; raise count"),
    ([], "it holds a list: expected keys and values"),
    (None, "it holds nothing: expected keys and values"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), WRONG, ids=[message for _, message in WRONG])
def test_refuses(content: Any, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        convert(content, Outer, source="file.yaml")
    assert str(caught.value) == f"file.yaml: {message}"


def test_of_many_known_keys_the_most_alike_are_named_and_where_all_are() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Many:
        learning_rate: float = 0.1
        learning_rate_of_the_warm_up: float = 0.1
        batch_size: int = 1
        weight_decay: float = 0.1
        momentum: float = 0.1
        label_smoothing: float = 0.1

    with pytest.raises(SettingError, match="^unknown key lrate; did you mean learning_rate") as caught:
        convert({"lrate": 1}, Many)
    with pytest.raises(SettingError) as caught:
        convert({"foo": 1}, Many)
    assert caught.value.advice.startswith("the closest of 6 keys: ") and caught.value.advice.count(",") == 2
    assert caught.value.advice.endswith(f"; {__name__}.{Many.__qualname__} has all")


def test_an_error_comes_out_of_another_process_as_it_is() -> None:
    error = SettingError("a.b", "is 3", expected="2", advice="or leave it out", instead="c", source="file.yaml")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), vars(copied)) == (SettingError, vars(error))
    assert str(copied) == "file.yaml: a.b is 3: expected 2; use c; or leave it out"


def test_the_parts_of_an_error_are_its_own() -> None:
    with pytest.raises(SettingError) as caught:
        convert({"count": 1, "inner": {"share": 2}}, Outer, name="outer", source="file.yaml")
    error = caught.value
    assert (error.name, error.problem, error.source) == ("outer.inner.share", "is 2.0", "file.yaml")
    assert error.sentence("--share") == "file.yaml: --share is 2.0: expected a number, more than 0 and below 1"


class OptionsStruct(msgspec.Struct, frozen=True):
    beam: Count = 4

    def __post_init__(self) -> None:
        check(self)


@dataclasses.dataclass(frozen=True)
class OptionsClass(Checked):
    beam: Count = 4


@pytest.mark.parametrize("kind", [OptionsStruct, OptionsClass])
def test_settings_made_in_python_are_checked(kind: Any) -> None:
    assert kind(2).beam == 2
    for wrong in (0, 1.5, None, "4"):
        with pytest.raises(SettingError, match=f"^beam is {wrong!r}: expected a whole number, 1 or more$"):
            kind(wrong)


def test_describe_names_alternatives() -> None:
    assert describe(msgspec.inspect.type_info(int | str | None)) == "a whole number or text, or null"
