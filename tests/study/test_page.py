"""The page of results: whole in one file, and in a browser its values, tables and print view."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rskip.analysis.measurement import Measurement
from rskip.records import Record
from study.__main__ import main
from study.costs import FILE as COSTS

MakeRecord = Callable[..., Record]
COMMIT = "0123456789abcdef"
PLACE = {"model": "sas", "depth": 8, "stage": "layer1", "name": "", "sublayer": ""}
GRADIENTS = [{**PLACE, "block": block, "gradient": 2.0**block} for block in (1, 2, 3)]
TRACE = [
    {"model": "sas", "seed": 1, "update": update, "block": block, "stage": "layer1", "sublayer": "", "x_rms": 1.5,
     "f_rms": 0.5, "y_rms": 2.0, "gradient": block / update, "alpha": None, "beta": None, "gamma": None}
    for update in (1, 2) for block in (1, 2, 3)
]  # fmt: skip
CLAIM = "{where: section 1, claim: It is <so>, untested: too dear}"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, make_record: MakeRecord) -> Path:
    """The page of a project with a table of three seeds, one of which diverged, a grid, costs, figures and a claim."""
    for module in ("matplotlib", "scipy"):
        pytest.importorskip(module)
    root = tmp_path_factory.mktemp("project")
    for folder in ("docs/figures", "recipes", "results", COSTS.parent):
        (root / folder).mkdir(parents=True)
    conditions = {"examples": 7, "git": {"commit": COMMIT, "dirty": True}, "machine": {"cpu": "Zuse Z4", "threads": 1}}
    for name, analysis, rows in (("lines", "gradients", GRADIENTS), ("cells", "trace", TRACE)):
        measured = Measurement(analysis=analysis, conditions=conditions, rows=rows)
        measured.write(root / f"docs/figures/{name}_measured.json")
    (root / "study/figures.yaml").write_text(
        "lines: {title: Lines, source: docs/figures/lines_measured.json}\n"
        "cells: {title: Cells, source: docs/figures/cells_measured.json, quantities: [gradient]}\n"
        "curve: {title: Curve, source: results/mine/plain/*.json, quantities: [valid_loss]}\n"
    )
    (root / "study/claims.yaml").write_text(
        f"costs: {{}}\npapers:\n  - name: P\n    title: A paper\n    claims: [{CLAIM}]\n"
    )
    (root / "recipes/mine.yaml").write_text(
        "kind: translation\ncorpus: a\nbaseline: plain\n"
        "variants: {plain: {description: x + f}, twice: {}, worse: {}, none: {}}\n"
    )
    grid = "kind: translation\ncorpus: a\n"
    grid += "variants: [{%s: {train: {connection: %s}}}, {r1: {}, r2: {train: {lr: 2.0}}}]\n"
    for name, connection in (("grid", "sas"), ("unknown", "highway")):
        (root / f"recipes/{name}.yaml").write_text(grid % (connection, connection))
    cost = {"model": "translation", "parameters": 1, "kept_megabytes": 2.0, "calls_backward": 1}
    cost |= {"megabytes_forward": 1.0, "megabytes_backward": 1.0}
    rows = [{**cost, "connection": name, "calls_forward": calls} for name, calls in (("1xskip+ln", 1), ("sas", 1200))]
    models = {"translation": {"description": "Transformer", "baseline": "1xskip+ln"}}
    (root / COSTS).write_text(json.dumps({"date": "2026-02-03", "models": models, "rows": rows}) + "\n")
    config = {"kind": "translation", "corpus": "a"}
    for variant, figures in {"plain": (8.0, 9.0, 7.0), "twice": (9.0, 10.1, 7.9)}.items():
        for seed, bleu in enumerate(figures, 1):
            more = {"metrics": {"sacrebleu": bleu}, "git": {"commit": COMMIT, "dirty": False}}
            made = make_record(recipe="mine", variant=variant, seed=seed, config=config, **more)
            made.write(root / made.path)
    unscored = {"metrics": {}, "signatures": {}, "curve": [], "checkpoint_sha256": None}
    others = [make_record(recipe="mine", variant="worse", config=config, **unscored)]
    betas = {"train.adam-betas": "(0.9, 0.98)"}
    others.append(make_record(recipe="mine", variant="plain", config=config, overrides=betas))
    for name, lr, loss in (("r1", {}, 4.5), ("r2", {"lr": 2.0}, 4.0)):
        content = {"metrics": {"sacrebleu": 30.0, "valid_loss": loss}, "curve": [{"epoch": 1, "valid_loss": loss}]}
        there = {**config, "train": {"connection": "sas", **lr}}
        others.append(make_record(recipe="grid", variant=f"sas_{name}", config=there, **content))
    for made in others:
        made.write(root / made.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["--html", "page.html"]) == 0
    return root / "page.html"


class Addresses(HTMLParser):
    """What a page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.inside: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src", "xlink:href", "srcset", "action") and value:
                if value.startswith("#"):
                    self.inside.add(value[1:])
                elif not value.startswith("data:"):
                    self.outside.append(value)


def test_the_page_holds_all_that_it_shows_and_says_where_numbers_are_from(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    addresses = Addresses()
    addresses.feed(text)
    assert addresses.outside == [] and addresses.inside <= addresses.ids
    assert not re.search(r"@import|url\((?!#)", text)
    assert {"figure-lines", "figure-cells", "record-mine/twice-3"} <= addresses.ids
    assert '9.00 ± 1.10 (seeds <a href="#record-mine/twice-1">1</a>' in text and "+1.00 [-1.38, +3.38]" in text
    assert (
        "examples 7; commit 0123456789 with changes; Zuse Z4, 1 thread; "
        "values: <code>docs/figures/lines.csv</code></figcaption>"
    ) in text
    assert '<a href="#record-mine/plain-3"><code>results/mine/plain/3.json</code></a>; values: ' in text
    assert '"mine/plain, validation loss, mean, epoch 1: 4"' in text
    assert "<td>0123456789</td>" in text and "<code>results/mine/twice/3.json</code>" in text
    assert "rskip run recipes/mine.yaml --variants twice --seeds 3</code>" in text
    assert "--variants plain --seeds 1 --set &#x27;train.adam-betas=&quot;(0.9, 0.98)&quot;&#x27;</code>" in text
    assert '<td>1 diverged (seed <a href="#record-mine/worse-1">1</a>)</td>' in text
    assert '"record-mine/worse-1">mine/worse</span></th><td>1</td><td>diverged</td>' in text
    assert "<td>It is &lt;so&gt;</td>" in text and '<b class="untested">untested</b>' in text


def test_grids_and_costs_are_tables_like_the_others(page: Path) -> None:
    grids, costs = re.findall(r'<section id="(?:grids|costs)">(.*?)</section>', page.read_text(encoding="utf-8"))
    assert re.findall("<h3>(.*?)</h3>", grids) == ["grid"], "nothing is known of the other"
    assert (
        '<tr><th scope="row">sas</th><td>4.50 (seed <a href="#record-grid/sas_r1-1">1</a>)</td>'
        '<td><b>4.00 (seed <a href="#record-grid/sas_r2-1">1</a>)</b></td>'
        "<td>30.00</td><td>600.50</td><td>1.00</td></tr>"
    ) in grids
    assert '<table aria-label="connection_cost_translation">' in costs
    assert '<th scope="row"><code>sas</code></th><td>1,201</td><td>2</td>' in costs
    expected = "Memory kept for the backward pass is relative to <code>1xskip+ln</code>. Measured in a"
    assert expected in costs


def test_figures_are_text_and_share_no_ids(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    groups = re.findall(r'<(?!path|clipPath|image)\w+ [^>]*?\bid="([^"]+)"', text)
    assert len(groups) == len(set(groups))
    assert '<h3>Lines</h3><div role="img" aria-label="Lines"><svg' in text and ">sas</text>" in text


def test_a_target_lies_where_its_value_is_drawn(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = text[text.index('id="figure-lines"') : text.index('id="figure-cells"')]
    markers = {
        (float(x), float(y))
        for x, y in re.findall(r'<use xlink:href="#m\w+" x="([\d.]+)" y="([\d.]+)" style="fill: #009e73', lines)
    }
    number = r"([\d.]+)"
    box = rf'<rect class="value" x="{number}" y="{number}" width="{number}" height="{number}" data-says="([^"]+)"'
    found = re.findall(box, lines)
    assert [each[-1] for each in found] == [
        f"sas, stage 1, gradient norm ‖∂L/∂y‖, depth 8, block {block}: {2**block}" for block in (1, 2, 3)
    ]
    for x, y, width, height, _ in found:
        centre = float(x) + float(width) / 2, float(y) + float(height) / 2
        assert min(abs(a - centre[0]) + abs(b - centre[1]) for a, b in markers) < 0.25, (centre, markers)
    cells = re.findall(box, text[text.index('id="figure-cells"') : text.index('id="figure-curve"')])
    assert {each[-1] for each in cells} == {
        f"sas, seed 1, gradient norm ‖∂L/∂y‖, update {update}, block {block}: {block / update:.4g}"
        for update in (1, 2)
        for block in (1, 2, 3)
    }
    assert len({each[2:4] for each in cells}) == 1 and len({each[:2] for each in cells}) == 6, "one grid"


def test_what_excludes_each_other_is_one_line(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(page.parent)
    for other in (["mine"], ["--check"]):
        assert main(["--html", "other.html", *other]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not Path("other.html").exists()


def test_in_a_browser_values_show_on_hover_tables_sort_and_the_page_prints(page: Path, browser: Any) -> None:
    from selenium.webdriver import ActionChains

    def all_of(selector: str) -> list[Any]:
        return list(browser.find_elements("css selector", selector))

    browser.get(page.as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0, "nothing was fetched"
    for name in ("lines", "cells"):
        (picture,) = all_of(f"#figure-{name} svg")
        assert picture.size["width"] > 500 and picture.size["height"] > 100
        target = all_of(f"#figure-{name} .value")[2]
        ActionChains(browser).move_to_element(target).perform()
        (says,) = all_of("#says")
        assert says.is_displayed() and says.text == target.get_attribute("data-says")
    ActionChains(browser).move_to_element(all_of("h1")[0]).perform()
    assert not says.is_displayed()

    def first_column() -> list[str]:
        return [cell.text.split("\n")[0] for cell in all_of("#our-comparisons tbody th")]

    (heading,) = [each for each in all_of("#our-comparisons th button") if each.text == "our sacreBLEU"]
    orders, others = [], ["mine/worse", "mine/none"]
    for _ in range(2):
        heading.click()
        orders.append(first_column())
    assert orders == [["mine/plain", "mine/twice", *others], ["mine/twice", "mine/plain", *others]]
    assert all_of("#our-comparisons th[aria-sort]")[0].get_attribute("aria-sort") == "descending"
    assert base64.b64decode(browser.print_page()).startswith(b"%PDF")
    assert all_of("nav")[0].is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not all_of("nav")[0].is_displayed() and all_of("#figure-cells svg")[0].is_displayed()
    browser.set_window_size(794, 1123)  # A4
    whole, seen = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert whole <= seen, "nothing is cut off on paper"
