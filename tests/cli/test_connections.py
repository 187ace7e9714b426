"""`rskip connections`: its list, and the description of a connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from rskip.cli.main import main
from rskip.connections import list_connections, parse_connection
from rskip.formulas import registry


def shown(*arguments: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["connections", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_family_is_listed_by_a_valid_spec(capsys: pytest.CaptureFixture[str]) -> None:
    listed = shown(capsys=capsys)
    lines = [line.split(maxsplit=1) for line in listed[: listed.index("")]]
    expected = [(family.name, family.formula) for family in list_connections()]
    assert [(parse_connection(spec).family, formula) for spec, formula in lines] == expected
    assert {"2xskip+ln", "2rskip+ln", "prenorm+ln", "sas"} <= {spec for spec, _ in lines}
    models = [line.rsplit(maxsplit=1) for line in listed[listed.index("") + 2 :]]
    assert all(str(parse_connection(spec)) == spec for _, spec in models) and len(models) == len(registry.MODELS)


def test_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown("1rskip+rms", "laurel:rank=4", "hyper", capsys=capsys)
    facts = [tuple(line.strip().split("  ", 1)) for line in lines]
    found = {(part, rest[0].strip()) for part, *rest in facts if rest}
    assert {
        ("λ", "1 (possible: an integer from 1 to 100)"),
        ("normalisation", "rms (possible: ln or rms or gn1 or bn)"),
        ("folds into", "1xskip+rms, after training"),
        ("works on", "sequences and feature maps"),
        ("option rank", "4 (possible: a whole number from 1 to 4096): number of A's rows"),
        ("works on", "sequences"),
        ("needs", "the block position, several tensors from block to block"),
    } <= found
    assert not any("default options" in line for line in lines)
    assert "default options" in shown("hyper:exit=mean", capsys=capsys)[1], "the line states the sum of the streams"


def test_every_family_can_be_described(capsys: pytest.CaptureFixture[str]) -> None:
    listed = shown(capsys=capsys)
    specs = [line.split()[0] for line in listed[: listed.index("")]]
    lines = shown(*specs, capsys=capsys)
    assert [line for line in lines if line and not line.startswith(" ")] == specs
    assert all(line.strip() for line in "\n".join(lines).split("\n\n"))


def test_own_and_wrong_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    folder = tmp_path / "listed_types"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from rskip.connections import Connection, register_connection\n"
        "@register_connection('half', source='ours')\n"
        "class Half(Connection):\n"
        "    def combine(self, x, f):\n"
        "        return x + f / 2\n"
    )
    assert "half" in [line.split()[0] for line in filter(None, shown("--user-dir", str(folder), capsys=capsys))]
    assert main(["connections", "xskip+ln"]) == 2
    assert "write '1xskip+ln'" in capsys.readouterr().err
