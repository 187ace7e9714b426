"""train.user-dir: reading a recipe registers the connections in that folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rskip.connections import parse_connection
from rskip.formulas import registry
from rskip.settings.check import convert
from rskip.settings.errors import SettingError
from rskip.translation.recipe import TranslationSettings

OWN = """
from rskip.connections import Connection, register_connection

@register_connection("halved", source="a test")
class Halved(Connection):
    def combine(self, x, f):
        return x + f / 2
"""


def settings(**train: object) -> TranslationSettings:
    flags = {"arch": "transformer_rskip_ln_tiny", "max-tokens": 4000, "max-update": 1, **train}
    return convert({"corpus": "numbers-en-de", "train": flags}, TranslationSettings)


@pytest.fixture
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package, which is forgotten afterwards."""
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_parts_of_test").mkdir()
    yield tmp_path / "own_parts_of_test"
    sys.modules.pop("own_parts_of_test", None)


def test_its_connections_have_names(own_parts: Path) -> None:
    (own_parts / "__init__.py").write_text(OWN)
    with pytest.raises(SettingError, match="train.connection is 'halved'"):
        settings(connection="halved")
    for _ in range(2):
        assert settings(**{"user-dir": own_parts.name, "connection": "halved"}).user_dir == own_parts.name
    assert parse_connection("halved").paper.title == "a test"
    assert settings().user_dir == "rskip"


def test_what_can_not_be_imported_is_one_line(own_parts: Path) -> None:
    with pytest.raises(SettingError, match="expected an existing folder with an __init__.py") as error:
        settings(**{"user-dir": own_parts.name})
    assert error.value.name == "train.user-dir"
    (own_parts / "__init__.py").write_text("1 / 0")
    with pytest.raises(SettingError, match=r"can't be imported \(ZeroDivisionError: division by zero\)"):
        settings(**{"user-dir": own_parts.name})


def test_the_search_and_the_split_are_checked_here_since_fairseq_takes_any() -> None:
    for changes, message in (
        ({"generate": {"beam": 0}}, "generate.beam is 0: expected a whole number, 1 or more"),
        ({"generate": {"lenpen": 1000}}, "generate.lenpen is 1000.0: expected a number, -20 or more"),
        ({"generate": {"nbest": 6}}, "generate.nbest is 6: expected at most beam (--beam), which is 5"),
        ({"evaluate": {"split": "../x"}}, "evaluate.split is '../x': expected train, valid, test, or test1"),
    ):
        content = {"corpus": "numbers-en-de", "train": {"arch": "x", "max-tokens": 4000, "max-update": 1}, **changes}
        with pytest.raises(SettingError) as caught:
            convert(content, TranslationSettings)
        assert str(caught.value).startswith(message)
