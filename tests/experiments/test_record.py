"""Records: written and read back, refused where they are not whole. Committed records are checked here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from rskip.experiments.record import read_record, read_records, record_path

from rskip.experiments.recipe import load_recipe


def test_written_and_read_back(make_record, tmp_path: Path) -> None:
    record = make_record(git={"commit": "abc", "dirty": False}, published={"sha256": "1"})
    record.write(tmp_path / record.path)
    assert record.path == Path("results/numbers/1.json") == record_path("numbers", 1)
    assert read_record(tmp_path / record.path) == record
    assert next(iter(json.loads((tmp_path / record.path).read_text()))) == "schema"


def test_records_of_a_folder_come_in_the_order_of_runs_and_seeds(make_record, tmp_path: Path) -> None:
    for record in (make_record(seed=10), make_record(seed=2), make_record(recipe="a")):
        record.write(tmp_path / record.path)
    found = [(record.run, record.seed) for record in read_records(tmp_path / "results")]
    assert found == [("a", 1), ("numbers", 2), ("numbers", 10)]
    assert read_records(tmp_path / "absent") == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "schema is 2; this version reads schema 1"),
        ({"seed": "1"}, "seed is '1'; expected int"),
        ({"seed": True}, "seed is True; expected int"),
        ({"curve": {}}, "curve is {}; expected list"),
        ({"curve": [{"update": 3}]}, "without `epoch`"),
        ({"metrics": {}}, "metrics is empty"),
        ({"metrics": {"sacrebleu": "38"}}, "metrics.sacrebleu is '38'"),
        ({"metrics": {"sacrebleu": float("nan")}}, "metrics.sacrebleu is nan"),
        ({"signatures": {"ter": "x"}}, "signatures.ter has no figure"),
        ({"checkpoint_sha256": "abc"}, "expected 64 hexadecimal digits"),
        ({"training": {"seconds": 3}}, "training.pieces is missing"),
        ({"git": 3}, "git is 3; expected Mapping or null"),
    ],
)
def test_what_is_not_a_record_is_refused(make_record, changes: dict, message: str) -> None:
    with pytest.raises(ValueError) as error:
        make_record(**changes)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda content: content | {"metircs": {}}, "unknown key metircs; did you mean metrics?"),
        (lambda content: {k: v for k, v in content.items() if k != "machine"}, "machine is missing"),
        (lambda content: [content], "a record is a JSON object"),
    ],
)
def test_a_file_that_is_not_a_record_is_named(make_record, tmp_path: Path, edit, message: str) -> None:
    path = tmp_path / "1.json"
    path.write_text(json.dumps(edit(dataclasses.asdict(make_record()))))
    with pytest.raises(ValueError) as error:
        read_record(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_cut_off_record_is_named(make_record, tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    make_record().write(path)
    path.write_text(path.read_text()[:100])
    with pytest.raises(ValueError, match="not a JSON file"):
        read_record(path)


def test_committed_records_are_whole_and_were_made_by_the_recipes_as_they_are(root: Path) -> None:
    for path in sorted((root / "results").glob("*/*.json")):
        record = read_record(path)
        assert root / record.path == path
        recipe_file = root / "recipes" / f"{record.recipe}.yaml"
        if recipe_file.exists():
            overrides = [f"{key}={json.dumps(value)}" for key, value in record.overrides.items()]
            recipe = load_recipe(recipe_file, overrides=overrides)
            assert (record.config, record.run) == (recipe.config, recipe.run_name), path
