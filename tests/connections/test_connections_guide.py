"""docs/connections.md and its neighbours: every spec is valid, and the code runs."""

from __future__ import annotations

import re

import pytest
import torch

from rskip.connections import build_connection, parse_connection
from rskip.formulas import registry

TABLE_ROW = re.compile(r"^\|(?P<specs>[^|]*)\|(?P<rest>.*)\|$", re.MULTILINE)


@pytest.fixture
def guide(root) -> str:
    return (root / "docs" / "connections.md").read_text(encoding="utf-8")


def test_every_spec_in_the_table_is_canonical_and_builds(guide):
    specs = first_table(guide)
    assert len(specs) == len(set(specs)) >= 30
    for spec in specs:
        assert str(parse_connection(spec)) == spec
        build_connection(spec, 8, feature_dim=1 if "bn" in spec or "gn1" in spec else -1)


def first_table(guide: str) -> list[str]:
    table = guide.split("## All connections")[1].split("\n## ")[0]
    return [spec for row in TABLE_ROW.finditer(table) for spec in re.findall(r"`([^`]+)`", row["specs"])]


def test_the_code_runs(guide, root, monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    others = (root / f"docs/{page}.md" for page in ("connection_details", "own_connection"))
    pages = [guide, *(page.read_text(encoding="utf-8") for page in others)]
    first, profiling, own = (re.search(r"```python\n(.*?)```", page, re.DOTALL)[1] for page in pages)
    names: dict = {"__name__": "guide"}
    exec(first, names)
    assert torch.isfinite(names["y"]).all() and names["y"].shape == (8, 20, 512)
    exec(profiling, names)
    exec(own, names)
    x, f = torch.randn(2, 3, 512)
    expected = torch.nn.functional.layer_norm(2 * x + f, (512,))
    torch.testing.assert_close(names["connection"](x, f), expected)
