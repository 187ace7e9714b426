"""Text from records, recipes, claims, figures and costs stays text on the results page and never becomes markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import yaml

from rskip.analysis.measurement import Measurement
from rskip.experiments.results import read_results
from rskip.records import Record
from study.costs import FILE as COSTS
from study.costs import read_costs
from study.documents import outdated_texts
from study.page import results_page

MakeRecord = Callable[..., Record]
NAME = "\"'><img src=x onerror=alert(1)>&a"  # a file name, so it has no slash
ROWS = [
    {"model": "", "depth": 8, "stage": "", "name": "", "sublayer": "", "block": block, "gradient": 2.0**block}
    for block in (1, 2, 3)
]


class Hostile:
    """Makes a hostile string for each field, and lists all fields."""

    def __init__(self) -> None:
        self.fields: list[str] = []

    def __call__(self, field: str) -> str:
        self.fields.append(field)
        return f"javascript:alert(0) {{{field}}} \"'><script>x</script>&lt;<b onclick=x> $\\frac$"


class Page(HTMLParser):
    """Collects a page's tags with their attributes, its text, and its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def hostile() -> Hostile:
    return Hostile()


@pytest.fixture
def project(tmp_path: Path, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, hostile: Hostile) -> Path:
    """A project with a hostile string in every field that takes text."""
    for module in ("matplotlib", "scipy"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    for folder in ("docs/figures", "recipes", "results", COSTS.parent):
        (tmp_path / folder).mkdir(parents=True)
    variant = {"description": hostile("description"), "expected": {"machine": hostile("expected.machine")}}
    variant["paper"] = [{"bleu": 30.0, "table": hostile("paper.table"), "note": hostile("paper.note")}]
    recipe = {"kind": "translation", "corpus": hostile("recipe.corpus"), "baseline": "plain"}
    train = {hostile("train key"): hostile("train value")}
    recipe["variants"] = {"plain": variant, "twice": {**variant, "train": train}}
    (tmp_path / f"recipes/{NAME}.yaml").write_text(yaml.safe_dump(recipe))
    config = {key: value for key, value in recipe.items() if key in ("kind", "corpus")}
    records = []
    for seed in (1, 2):
        for name, bleu in (("plain", 30.0), ("twice", 31.0 + seed)):
            there = {**config, **({"train": train} if name == "twice" else {})}
            metrics, signed = {"sacrebleu": bleu}, {"sacrebleu": "signature"}
            more = {"seed": seed, "config": there, "metrics": metrics, "signatures": signed}
            records.append(make_record(recipe=NAME, variant=name, **more))
    known = {"kind": "translation", "seed": 3, "checkpoint_sha256": "0" * 64, "parameters": 1, "schema": 2}
    known |= {"curve": [{"epoch": 1, "valid_loss": 1.0}], "metrics": {"sacrebleu": 1.0, hostile("metric"): 1.0}}
    mappings = {
        "config": {"kind": "translation", "corpus": hostile("record.corpus"), hostile("config key"): 1},
        "overrides": {hostile("override key"): hostile("override value")},
        "signatures": {"sacrebleu": hostile("signature")},
        "training": {"seconds": 1.0, "pieces": 1, "precision": hostile("precision")},
        "data": {hostile("data key"): hostile("data value")},
        "packages": {hostile("package"): hostile("version")},
        "machine": {"cpu": hostile("cpu"), "threads": 1, "gpu": None},
        "git": {"commit": '"><b>' + hostile("commit"), "dirty": True},
    }
    texts = {each.name: hostile(f"record.{each.name}") for each in msgspec.structs.fields(Record)
             if each.name not in known and each.name not in mappings and each.name != "path"}  # fmt: skip
    assert set(texts) == {"recipe", "variant", "date"}
    records.append(Record(**known, **mappings, **texts))
    for number, record in enumerate(records):
        record.write(tmp_path / f"results/{number}/{record.seed}.json")
    claim = {name: hostile(f"claim.{name}") for name in ("where", "claim", "paper_says", "at", "command", "note")}
    checked = {"says": "{:.1f} " + hostile("says").translate(str.maketrans("{}", "()")), "above": 1}
    checked["value"] = {"file": "results/0/1.json", "of": "metrics.sacrebleu"}
    claims = [{**claim, "checks": [checked]}, {**claim, "untested": hostile("untested")}]
    paper = {"name": hostile("claims.name"), "title": hostile("claims.title"), "claims": claims}
    ledger = {"costs": {hostile("cost of"): hostile("cost")}, "papers": [paper]}
    (tmp_path / "study/claims.yaml").write_text(yaml.safe_dump(ledger))
    machine = {"cpu": hostile("measured on"), "threads": 1}
    conditions = {hostile("condition"): hostile("conditions"), "git": {"commit": "a" * 40}, "machine": machine}
    places = {name: hostile(f"measured {name}") for name in ("model", "stage", "name", "sublayer")}
    measured = Measurement(analysis="gradients", conditions=conditions, rows=[{**row, **places} for row in ROWS])
    measured.write(tmp_path / f"docs/figures/{NAME}.json")
    figure = {"title": hostile("figure title"), "source": "docs/figures/*.json"}
    (tmp_path / "study/figures.yaml").write_text(yaml.safe_dump({"lines": figure}))
    cost = {"model": "translation", "parameters": 1, "kept_megabytes": 2.0, "calls_forward": 1, "calls_backward": 1}
    cost |= {"megabytes_forward": 1.0, "megabytes_backward": 1.0}
    models = {"translation": {"description": hostile("model"), "baseline": hostile("cost baseline")}}
    rows = [{**cost, "connection": name} for name in (models["translation"]["baseline"], hostile("cost connection"))]
    line = {"date": hostile("cost date")[:500], "models": models, "rows": rows}
    (tmp_path / COSTS).write_text(json.dumps(line) + "\n")
    return tmp_path


def test_no_field_becomes_markup_on_the_page(project: Path, hostile: Hostile) -> None:
    page = Page()
    page.feed(results_page(project))
    page.close()
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == tags.count("title") == 1 and "img" not in tags
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not [name for name in attributes if name.startswith("on") or set(name) & set("\"'<>&")]
    addresses = [attrs.get(name) for _, attrs in page.tags for name in ("href", "xlink:href", "src") if name in attrs]
    assert addresses and all(address and address.startswith("#") for address in addresses)
    assert all("onclick" not in attrs for _, attrs in page.tags)
    assert not [attrs for tag, attrs in page.tags if tag == "b" and set(attrs) - {"class"}]
    shown = page.text + "".join(value or "" for _, attrs in page.tags for value in attrs.values())
    seen = {field for field in hostile.fields if f"{{{field}}}" in shown or f"({field})" in shown}
    unseen = {"expected.machine", "config key", "record.corpus", "recipe.corpus", "metric", "signature", "data key",
              "data value", "package", "version", "cost of", "cost",
              "measured name", "cost date", "record.date", "commit"}  # fmt: skip
    assert set(hostile.fields) - seen <= unseen, "shown, as text"
    identifiers = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert f"record-{NAME}/plain-1" in identifiers and {f"#{each}" for each in identifiers} >= {
        address for tag, address in ((tag, attrs.get("href")) for tag, attrs in page.tags) if tag == "a"
    }


def test_no_field_becomes_html_in_markdown(project: Path) -> None:
    """Checks the text outside code spans, because Markdown escapes those itself."""
    texts = outdated_texts(project, read_results(project), read_costs(project))
    assert {path.name for path in texts} == {"README.md", "claims.md"}
    for path, text in texts.items():
        assert "script" in text
        outside = re.sub(r"`[^`\n]*`|^    .*$", "", text, flags=re.MULTILINE)
        assert not re.findall(r"<[a-z/]+", outside), path
