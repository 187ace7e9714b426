"""docs/connections.md and its neighbours: every spec is valid, the table is complete, and the code runs."""

from __future__ import annotations

import re

import pytest
import torch

from rskip.connections import (
    HOST_NEEDS,
    Place,
    build_connection,
    find_family,
    list_connections,
    parse_connection,
)
from rskip.formulas import registry

WORDS = {"sequences": "text", "feature maps": "images"}
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


def test_the_table_of_other_papers_says_what_each_needs_and_works_on(guide):
    table = guide.split("## From other papers")[1].split("\n## ")[0]
    rows = [(re.findall(r"`([^`]+)`", row["specs"]), row["rest"].split("|")) for row in TABLE_ROW.finditer(table)]
    rows = [(specs, [cell.strip() for cell in cells]) for specs, cells in rows if specs]
    works, tables = {}, {spec for specs, _ in rows for spec in specs}
    for specs, (_, needs, works_on, _, _) in rows:
        for spec in specs:
            family = find_family(parse_connection(spec).family)
            assert str(parse_connection(spec)) == spec
            build_connection(spec, 8, place=Place("encoder", "ffn", 2, 4, 1, 2, 2), host_supplies=HOST_NEEDS)
            assert needs == ", ".join(family.needs)
            works.setdefault(family.name, set()).update(WORDS[each] for each in works_on.split(", "))
    assert all(found == set(find_family(name).works_on) for name, found in works.items())
    shown = {parse_connection(spec).family for spec in (*tables, *first_table(guide))}
    missing = {family.name for family in list_connections()} - shown
    assert missing == set(), 'docs/connections.md: add a row to "From other papers"'


def first_table(guide: str) -> list[str]:
    table = guide.split("## All connections")[1].split("\n## ")[0]
    return [spec for row in TABLE_ROW.finditer(table) for spec in re.findall(r"`([^`]+)`", row["specs"])]


def test_the_table_of_families_lists_every_option_with_its_default(guide):
    table = guide.split("## Writing a spec")[1].split("\n## ")[0]
    listed = {match["specs"].strip(): match["rest"] for match in TABLE_ROW.finditer(table)}
    rows = {name: rest for names, rest in listed.items() for name in names.split(", ")}
    for family in list_connections():
        assert family.name in rows, 'docs/connections.md: add a row to "Writing a spec"'
        options = rows[family.name].split("|")[-1]
        assert set(re.findall(r"`(\w+)`", options)) == set(family.options)
        for name, option in family.options.items():
            default = re.search(rf"`{name}`[^(;]*\(([^)]*)\)", options)
            assert default is not None and default[1] == str(option.default).lower()
        norms = rows[family.name].split("|")[1]
        assert re.findall(r"none|ln|rms|gn1|bn", norms) == [norm or "none" for norm in family.norms]


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
