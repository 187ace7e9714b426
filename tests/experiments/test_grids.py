"""Tables of grids: exact text over seeds, comparisons, missing cells; those with costs are in tests/study."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rskip.cli.main import main
from rskip.experiments.grids import _rose
from rskip.experiments.recipe import load_recipe
from rskip.records import Record

MakeRecord = Callable[..., Record]
RECIPE = """
kind: translation
corpus: numbers-en-de
train: {arch: transformer_skip_ln_tiny, max-tokens: 4000, max-epoch: 12}
variants:
  - {small: {}, large: {train: {encoder-layers: 18, decoder-layers: 18}}}
  - plain: {train: {connection: 1xskip+ln}}
    twice: {train: {connection: 2xskip+ln}}
    gates: {train: {connection: sas}}
  - {lr2: {train: {lr: 2.0}}, lr1: {train: {lr: 1.0}}}
"""
CONNECTIONS = {"plain": "1xskip+ln", "twice": "2xskip+ln", "gates": "sas"}
COMMAND = "rskip run recipes/mine.yaml --variants"


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
    """`record("twice", 1, 4.5, lr=2)` writes the record of a small variant and a seed that ends with this loss."""

    def make(name: str, seed: int, loss: float | None, *, lr: int, lowest: float = 5.0, bleu: float = 30.0) -> None:
        content: dict[str, Any] = {
            "config": load_recipe(f"mine/small_{name}_lr{lr}").config,
            "training": {"seconds": 60.0, "pieces": 1, "precision": "float32"},
            "metrics": {"sacrebleu": bleu, "valid_loss": loss},
            "curve": [{"epoch": 1, "valid_loss": lowest}, {"epoch": 2, "valid_loss": loss}],
        }
        if loss is None:
            content |= {"metrics": {}, "signatures": {}, "checkpoint_sha256": None, "curve": []}
        elif math.isnan(loss):  # what a log that says so leaves
            content |= {"metrics": {"sacrebleu": bleu}, "curve": []}
        made = make_record(recipe="mine", variant=f"small_{name}_lr{lr}", seed=seed, **content)
        made.write(made.path)

    return make


def test_without_records_a_grid_has_its_lines_and_the_commands_that_fill_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "mine/large"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mine/large",
        "",
        "variant  lr2  lr1",
        "plain",
        "twice",
        "gates",
        "",
        "No variant has a run record yet.",
        "",
        "Missing:",
        "",
        f"    {COMMAND} large_plain_lr2 large_plain_lr1 large_twice_lr2 large_twice_lr1 large_gates_lr2 "
        "large_gates_lr1 --seeds 1",
    ]


def test_cells_are_compared_with_the_first_lines_where_both_have_seeds(
    record: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("scipy")
    for seed, (plain, twice) in enumerate([(4.5, 4.2), (4.6, 4.31), (4.7, 4.39)], start=1):
        record("plain", seed, plain, lr=2)
        record("twice", seed, twice, lr=2)
    record("gates", 1, 4.8, lr=2)
    assert main(["report", "mine/small", "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| variant | lr2 | difference, lr2 | p, lr2 | MDE, lr2 | sacreBLEU there |"
    assert lines[2:4] == [
        "| twice | **4.30 ± 0.10 (3)** | **-0.30 [-0.52, -0.08]** | 0.020 | 0.30 | 30.00 ± 0.00 |",
        "| plain | **4.60 ± 0.10 (3)** |  |  |  | 30.00 ± 0.00 |",
    ]
    assert {"Cells: validation loss, bits per token", "In brackets: 95% intervals"} <= {
        line.partition(".")[0].partition(", mean")[0] for line in lines
    }
    assert main(["report", "mine/small", "--format", "csv"]) == 0
    rows = {row["variant"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    cells = ("baseline", "seeds", "mean", "difference", "p")
    expected = ["mine/small_plain_lr2", "1 2 3", "4.3", "-0.3", "0.0198"]
    assert [rows["mine/small_twice_lr2"][cell] for cell in cells] == expected
    assert [rows["mine/small_gates_lr2"][cell] for cell in cells] == ["", "1", "4.8", "", ""]


@pytest.mark.parametrize("loss", ["valid_loss", "test_loss"])
def test_a_loss_that_ends_high_counts_as_diverged_in_every_task(make_record: MakeRecord, loss: str) -> None:
    ends = {end: _rose(make_record(curve=[{"epoch": 1, loss: 2.0}, {"epoch": 2, loss: end}])) for end in (2.9, 3.1)}
    assert ends == {2.9: False, 3.1: True}


def test_an_unknown_grid_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "mine/smal"]) == 2
    assert "no table mine/smal (did you mean 'mine/small'?)" in capsys.readouterr().err
