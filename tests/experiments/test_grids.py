"""Tables of grids: exact text over seeds, divergence, missing cells, costs; and the table of costs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.cli.main import main
from rskip.experiments.costs import FILE, read_costs
from rskip.experiments.recipe import load_recipe
from rskip.experiments.report import figures, outdated_tables
from rskip.experiments.results import read_results
from rskip.records import Record
from rskip.settings.errors import SettingError

MakeRecord = Callable[..., Record]
RECIPE = """
kind: translation
corpus: numbers-en-de
train: {arch: transformer_skip_ln_tiny, max-epoch: 12}
variants:
  - {small: {}, large: {train: {encoder-layers: 18, decoder-layers: 18}}}
  - plain: {train: {connection: 1xskip+ln}}
    twice: {train: {connection: 2xskip+ln}}
    gates: {train: {connection: sas}}
  - {lr2: {train: {lr: 2.0}}, lr1: {train: {lr: 1.0}}}
"""
CONNECTIONS = {"plain": "1xskip+ln", "twice": "2xskip+ln", "gates": "sas"}
COMMAND = "rskip run recipes/mine.yaml --variants"
COST = {
    "model": "translation", "parameters": 1000, "kept_megabytes": 20.0, "calls_forward": 100, "megabytes_forward": 1.4,
    "calls_backward": 300, "megabytes_backward": 2500.0,
}  # fmt: skip
MODEL = {"translation": {"description": "Transformer of 2 layers", "baseline": "1xskip+ln"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the grid recipes/mine.yaml."""
    monkeypatch.chdir(tmp_path)
    for folder in ("recipes", "results", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture
def record(project: Path, make_record: MakeRecord) -> Callable[..., None]:
    """`record("twice", 1, 4.5, lr=2)` writes the record of a small row and a seed that ends with this loss."""

    def make(row: str, seed: int, loss: float | None, *, lr: int, lowest: float = 5.0, bleu: float = 30.0) -> None:
        content: dict[str, Any] = {
            "config": load_recipe(f"mine/small_{row}_lr{lr}").config,
            "training": {"seconds": 60.0, "pieces": 1, "precision": "float32"},
            "metrics": {"sacrebleu": bleu, "valid_loss": loss},
            "curve": [{"epoch": 1, "valid_loss": lowest}, {"epoch": 2, "valid_loss": loss}],
        }
        if loss is None:
            content |= {"metrics": {}, "signatures": {}, "checkpoint_sha256": None, "curve": []}
        elif math.isnan(loss):  # what a log that says so leaves
            content |= {"metrics": {"sacrebleu": bleu}, "curve": []}
        made = make_record(recipe="mine", variant=f"small_{row}_lr{lr}", seed=seed, **content)
        made.write(made.path)

    return make


def write_costs(*lines: dict[str, Any]) -> None:
    FILE.write_text("".join(json.dumps({"date": "2026-02-03T04:05:06+00:00", **line}) + "\n" for line in lines))


def test_without_records_a_grid_has_its_lines_and_the_commands_that_fill_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "mine/large"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mine/large",
        "",
        "row    lr2  lr1",
        "plain",
        "twice",
        "gates",
        "",
        "No row has a record yet.",
        "",
        "Missing:",
        "",
        f"    {COMMAND} 'large_*_lr2'",
        f"    {COMMAND} 'large_*_lr1'",
    ]


def test_costs_counted_at_a_rows_own_depth_stand_there_and_only_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = {"translation_18x18": {"description": "Transformer of 36 layers", "baseline": "1xskip+ln"}}
    shallow = [{**COST, "connection": name, "alike": 0.25} for name in ("1xskip+ln", "2xskip+ln")]
    deeper = [{**row, "model": "translation_18x18", "alike": 0.75} for row in shallow]
    write_costs({"models": MODEL, "rows": shallow}, {"models": deep, "rows": deeper})
    for name, alike, layers in (("small", "0.25", 2), ("large", "0.75", 36)):
        assert main(["report", f"mine/{name}"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines[3:5]] == [[row, "1.00", "1.00", alike] for row in ("plain", "twice")]
        assert sum(line.endswith(f"in a Transformer of {layers} layers.") for line in lines) == 1


def test_lines_stand_by_their_best_cell_and_what_diverged_says_so(
    record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    record("plain", 1, 4.5, lr=2)
    record("plain", 1, 4.7, lr=1)
    record("plain", 2, 4.9, lr=1)
    record("twice", 1, 4.2, lr=2, bleu=33.0)
    record("twice", 2, 4.4, lr=2, bleu=34.0)
    record("twice", 1, None, lr=1)
    record("gates", 1, 4.0, lr=2)
    record("gates", 2, 6.1, lr=2)  # 1.1 above its lowest
    record("gates", 3, math.nan, lr=2)
    write_costs(
        {"models": MODEL, "rows": [{"connection": "1xskip+ln", **COST}, {"connection": "sas", **COST}]},
        {"models": MODEL, "rows": [{**COST, "connection": "sas", "kept_megabytes": 30.0, "update_ratio": 1.25}]},
        {"models": MODEL, "rows": [{**COST, "connection": "1xskip+ln", "alike": 0.762}]},
    )
    assert main(["report", "mine/small", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (
        "| row | lr2 | lr1 | sacreBLEU there | time | calls | memory | alike |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| twice | **4.30 ± 0.14 (2)** | diverged | 33.50 ± 0.71 |  |  |  |  |\n"
        "| plain | **4.50 (1)** | 4.80 ± 0.14 (2) | 30.00 |  | 1.00 | 1.00 | 0.76 |\n"
        "| gates | **4.00 (1), 2 diverged** |  | 30.00 | 1.25 | 1.00 | 1.50 |  |\n\n"
        "Cells: validation loss, bits a token, mean ± sample standard deviation (seeds); the best first, and of a line "
        "in bold.  \n"
        "Diverged: a loss, gradient or weight was not finite, or the loss ended more than 1 above its lowest; such "
        "seeds are in no mean.  \n"
        "One seed is no comparison.  \n"
        "sacreBLEU: `nrefs:1|tok:13a`.  \n"
        "Time of an update, operator calls and memory kept for the backward pass: × `1xskip+ln`'s; alike: the cosine "
        "between two positions of a sentence behind the untrained encoder; all in a Transformer of 2 layers.\n\n"
        f"Missing:\n\n    {COMMAND} small_gates_lr1 --seeds 1\n"
    )
    assert main(["report", "mine/small", "--format", "csv"]) == 0
    assert "twice,4.30 ± 0.14 (2),diverged,33.50 ± 0.71,,,,\n" in capsys.readouterr().out
    assert main(["report", "mine/small", "--format", "latex"]) == 0
    assert r"twice & \textbf{4.30 $\pm$ 0.14 (2)} & diverged & " in capsys.readouterr().out


def test_cells_are_compared_with_the_first_lines_where_they_share_seeds(
    record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    for seed, (plain, twice) in enumerate([(4.5, 4.2), (4.6, 4.31), (4.7, 4.39)], start=1):
        record("plain", seed, plain, lr=2)
        record("twice", seed, twice, lr=2)
    record("gates", 1, 4.8, lr=2)
    assert main(["report", "mine/small", "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| row | lr2 | lr1 | difference, lr2 | p, lr2 | detectable, lr2 | sacreBLEU there |"
    assert lines[2:4] == [
        "| twice | **4.30 ± 0.10 (3)** |  | **-0.30 [-0.32, -0.28] (3 pairs)** | < 0.001 | 0.03 | 30.00 ± 0.00 |",
        "| plain | **4.60 ± 0.10 (3)** |  |  |  |  | 30.00 ± 0.00 |",
    ]
    assert "Differences are to plain in the same column, without seeds that diverged, by pairs of seeds.  " in lines


def test_a_grid_is_drawn_from_its_records(
    project: Path, record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    record("twice", 1, 4.2, lr=2)
    record("twice", 2, None, lr=2)
    write_costs({"models": MODEL, "rows": [{"connection": name, **COST} for name in ("1xskip+ln", "2xskip+ln")]})
    (project / "docs" / "figures").mkdir()
    listed = project / "docs" / "figures" / "figures.yaml"
    listed.write_text("mine: {grid: mine/small, quantities: [valid_loss, calls]}")
    made = figures(project, read_results(project))
    assert made[0].sources == ("results/mine/small_twice_lr2/1.json", "results/mine/small_twice_lr2/2.json")
    lines = ["twice,lr2,1,valid_loss,4.2", "twice,lr2,2,valid_loss,", "twice,lr1,,valid_loss,", "twice,,,calls,1.0"]
    assert made[0].csv.splitlines()[1:] == lines
    for text, message in (
        ("mine: {grid: mine/smal}", "mine.grid is 'mine/smal': expected mine/small, mine/large"),
        ("mine: {grid: mine/small, source: docs/figures/a.json}", "mine.grid has a source beside it"),
    ):
        listed.write_text(text)
        assert main(["report"]) == 2
        assert message in capsys.readouterr().err


def test_grids_and_costs_stand_in_documents(project: Path, record: Callable[..., None]) -> None:
    (project / "docs" / "own.md").write_text(
        "".join(
            f"<!-- rskip report: begin {name} -->\n<!-- rskip report: end {name} -->\n"
            for name in ("mine/small", "connection_cost_translation")
        )
    )
    record("plain", 1, 4.5, lr=2)
    baseline = {**COST, "connection": "1xskip+ln", "calls_forward": 1300}
    of_another = {"date": "2026-03-04", "models": {"vision": MODEL["translation"]}, "rows": []}
    write_costs({"models": MODEL, "rows": [{"connection": "sas", **COST}, baseline]}, of_another)
    text = outdated_tables(Path(), read_results(Path()))[Path("docs/own.md")]
    assert "| plain | **4.50 (1)** |" in text
    assert f"Missing:\n\n    {COMMAND} 'small_*_lr2'\n    {COMMAND} 'small_*_lr1'\n" in text
    assert text.endswith(
        "| `1xskip+ln` | 1,000 | 1,300 | 300 | 1 | 2,500 | 20 | 1.00 | 1.00 |\n"
        "| `sas` | 1,000 | 100 | 300 | 1 | 2,500 | 20 | 0.25 | 1.00 |\n\n"
        "Operator calls and memory kept for the backward pass: × `1xskip+ln`'s, in a Transformer of "
        "2 layers. Last measured 2026-02-03.\n\n"
        "<!-- rskip report: end connection_cost_translation -->\n"
    )


def test_a_record_of_other_settings_and_a_bad_line_are_refused(
    project: Path, record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    record("plain", 1, 4.5, lr=2)
    recipe = project / "recipes" / "mine.yaml"
    recipe.write_text(RECIPE.replace("1xskip+ln", "1xskip+rms"))
    assert main(["report", "mine/small"]) == 2
    assert "was made with train.connection: 1xskip+ln" in capsys.readouterr().err
    assert main(["report", "mine/smal"]) == 2
    assert "no table mine/smal (did you mean 'mine/small'?)" in capsys.readouterr().err
    write_costs({"models": MODEL, "rows": [{**COST, "connection": "sas", "parameters": "few"}]})
    with pytest.raises(SettingError, match=r"study/results/benchmarks/connection_cost.jsonl: parameters is 'few'"):
        read_costs(Path())


def test_variants_of_two_files_are_two_grids(project: Path) -> None:
    other = "kind: translation\nvariants: [{one: {}, two: {}}, {lr3: {}}]\n"
    (project / "recipes" / "mine_small.yaml").write_text(other)
    assert {"mine/small", "mine/large", "mine_small"} <= set(read_results(project).names)
