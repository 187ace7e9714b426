"""YAML and JSON as plain values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rskip.settings.errors import SettingError
from rskip.settings.text import parse_json, parse_overrides, parse_yaml, read_json, read_yaml, set_dotted


@pytest.mark.parametrize(
    ("text", "value"),
    [("5e-3", 0.005), ("-1E5", -1e5), ("3e+2", 300.0), ("0.003", 0.003), ("12", 12), ("1e", "1e"), ("on", True)],
)
def test_numbers_of_yaml(text: str, value: object) -> None:
    assert parse_yaml(text, source="here") == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_yaml, "a: 1\nb: {c: 1, c: 2}", "here, line 2: not valid YAML: key c is given twice: expected once"),
        (parse_yaml, "a: [", "here, line 1: not valid YAML: "),
        (parse_yaml, "[1, 2]: 3", "here, line 1: not valid YAML: a key is a list or a mapping: expected a name"),
        (parse_yaml, "2001-99-99", "here: not valid YAML: month must be in 1..12"),
        (parse_yaml, "!!timestamp x", "here: not valid YAML: "),
        (parse_yaml, "!!python/object/apply:os.system [ls]", "here, line 1: not valid YAML: could not determine"),
        (parse_json, '{"a": {"b": 1, "b": 2}}', "here: not valid JSON: key b is given twice: expected once"),
        (parse_json, "{", "here: not valid JSON: Expecting property name"),
        (parse_json, "[" * 100_000, "here: nested more than 100 levels deep"),
        (parse_json, "[" * 101 + "]" * 101, "here: nested more than 100 levels deep"),
    ],
)
def test_what_can_not_be_read(parse, text: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse(text, source="here")
    assert str(caught.value).startswith(message)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(SettingError, match="not valid UTF-8"):
        read_yaml(path)


def test_overrides() -> None:
    overrides = parse_overrides(["train.lr=3e-3", "train.arch=tiny", "seed=", "x=a=b"])
    assert overrides == {"train.lr": 0.003, "train.arch": "tiny", "seed": None, "x": "a=b"}
    content = {"train": {"lr": 1}}
    assert [set_dotted(content, key, value) for key, value in overrides.items()] == [1, None, None, None]
    assert content == {"train": {"lr": 0.003, "arch": "tiny"}, "seed": None, "x": "a=b"}
    with pytest.raises(SettingError, match="^x.y can't be set: x is one value, not a mapping$"):
        set_dotted(content, "x.y", 1)


@pytest.mark.parametrize("text", ["lr", "=3", "train..lr=3"])
def test_overrides_without_a_key(text: str) -> None:
    message = f"override {text}: expected key=value with a dotted key, such as train.lr=0.003"
    with pytest.raises(SettingError) as caught:
        parse_overrides([text])
    assert str(caught.value) == message


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_byte_order_mark_is_not_part_of_the_text(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "file").write_text('\ufeff{"a": 1}', encoding="utf-8")
    assert read(tmp_path / "file") == {"a": 1}
