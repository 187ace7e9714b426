"""Your own task, in one file outside rskip, from its recipe to `rskip.load`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rskip
from rskip.cli.main import main
from rskip.experiments.recipe import load_recipes
from rskip.records import read_record
from rskip.settings.errors import SettingError
from rskip.tasks import Task, find_task
from rskip.zoo.model_card import describe
from rskip.zoo.registry import list_models, read_registry

NAME = "line_1xskip.points"
SWEEP = """
kind: line
slope: 3.0
expected: {distance: 0.02, minutes: 1}
show: 2
variants:
  fast: {description: few steps, train: {steps: 5}}
  slow: {description: many steps, train: {steps: 30}, paper: [{distance: 0.01, table: Legendre Table 1}]}
"""


def test_from_recipe_to_load(
    project: Path, line_fitting: Task[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "recipes/lines.yaml").write_text(SWEEP)
    assert [recipe.task for recipe in load_recipes("recipes/lines.yaml")] == [line_fitting] * 2

    assert main(["run", "recipes/lines.yaml", "--variants", "*", "--seeds", "1", "2", "--gpus", "0"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("from step 0") == 4 and printed.count("  of 1") == 4
    assert "distance             0.00   (expected by the recipe: 0.02)" in printed
    assert "the paper            0.01   (distance, Legendre Table 1; from the paper, not from this run)" in printed
    assert "runs/lines/slow/2/trained.safetensors" in printed.partition("see also")[2]
    record = read_record(project / "results/lines/slow/2.json")
    assert (record.kind, record.recipe, record.config) == (
        "line", "lines", {"kind": "line", "slope": 3.0, "train": {"steps": 30, "lr": 0.1}}
    )  # fmt: skip
    assert record.metrics["slope"] == pytest.approx(3.0, abs=0.01) and record.training["pieces"] == 1

    assert main(["report"]) == 0
    table = capsys.readouterr().out
    assert "| run | parameters | seeds | distance | slope | training, minutes | machine |" in table
    assert "| lines/fast | 1 | 1, 2 | 1.15 ± 0.23 (2 seeds) |" in table
    assert "## points\n" in table

    assert main(["zoo", "publish", "lines/slow", "--seed", "2"]) == 0
    entry = read_registry(project / "checkpoints.json")[NAME]
    assert (entry.task, entry.recipe) == ("line", "lines/slow")
    assert [figure.metric for figure in entry.figures] == ["distance", "distance", "slope", "steps"]
    assert "line(2.0)" in (project / "checkpoints/lines/slow/README.md").read_text()
    assert "Legendre: New methods" in describe(entry)

    monkeypatch.setattr("rskip.zoo.loading.registry_file", lambda: project / "checkpoints.json")
    line = rskip.load(NAME)
    assert line(2.0) == pytest.approx(6.0, abs=0.01)
    with pytest.raises(ValueError, match="can't compute in 'int8': expected one of float32"):
        rskip.load(NAME, dtype="int8")


def test_a_task_that_is_not_registered_is_named_with_what_to_do(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["run", "recipes/mine.yaml"]) == main(["zoo", "publish", "mine"]) == 0
    for name, near in {"lines": "did you mean line?", "other": "once its module is imported"}.items():
        with pytest.raises(SettingError, match="expected translation or .* or line") as error:
            find_task(name)
        assert error.value.name == "task" and near in error.value.advice
    monkeypatch.undo()
    monkeypatch.setattr("rskip.zoo.loading.registry_file", lambda: project / "checkpoints.json")
    with pytest.raises(SettingError, match=f"^{NAME}: task is 'line': .*once its module is imported$"):
        rskip.load(NAME)
    models = read_registry(project / "checkpoints.json")
    assert NAME in describe(models[NAME]), "described, under its metric's own name"
    assert list_models(task="line", models=models) == [NAME]
    with pytest.raises(SettingError, match="kind is 'line': expected translation or vision"):
        find_task("line", setting="kind")
