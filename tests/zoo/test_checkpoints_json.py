"""The committed checkpoints.json: what it says of each model is what the model's files, record and recipe say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from rskip.zoo.entry_of_record import NOT_OF_THE_MODEL, entry_of_record
from rskip.zoo.publish import check_sizes, outdated_tables

from rskip.connections import parse_connection
from rskip.experiments.recipe import load_recipe
from rskip.files.checksum import sha256_file
from rskip.zoo.entry import OF_RUN, OF_WEIGHTS, WEIGHTS, ModelEntry
from rskip.zoo.model_card import model_card
from rskip.zoo.names import variant_of
from rskip.zoo.registry import read_registry, write_registry

MODELS = read_registry(Path(__file__).parents[2] / "checkpoints.json")
SHIPPED = {name: entry for name, entry in MODELS.items() if entry.folder is not None}


def read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_the_schema_accepts_it(root: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install 'rskip[dev]'")
    schema = read(root / "checkpoints.schema.json")
    jsonschema.Draft202012Validator(schema).validate(read(root / "checkpoints.json"))


def test_it_is_as_it_is_written(root: Path, tmp_path: Path) -> None:
    write_registry(tmp_path / "checkpoints.json", MODELS)
    assert (tmp_path / "checkpoints.json").read_bytes() == (root / "checkpoints.json").read_bytes()


def test_every_published_run_is_in_it_once(root: Path) -> None:
    published = sorted(path.parent.relative_to(root).as_posix() for path in root.glob("checkpoints/*/record.json"))
    assert sorted(str(entry.folder) for entry in SHIPPED.values()) == published


def test_models_are_small_enough_to_ship() -> None:
    check_sizes(MODELS)
    assert all(entry.size <= 20_000_000 for entry in SHIPPED.values())
    assert sum(entry.size for entry in SHIPPED.values()) <= 100_000_000


def test_the_tables_of_models_are_up_to_date(root: Path) -> None:
    assert [str(path) for path in outdated_tables(root)] == [], "run `rskip zoo publish RUN`"


@pytest.mark.parametrize("entry", SHIPPED.values(), ids=lambda entry: entry.name)
def test_files_are_those_that_lie_there(root: Path, entry: ModelEntry) -> None:
    folder = root / str(entry.folder)
    lying = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert entry.files.keys() == lying - set(NOT_OF_THE_MODEL)
    for path, file in entry.files.items():
        found = (folder / path).stat().st_size, sha256_file(folder / path)
        assert found == (file.size, file.sha256), f"{entry.name}: files: {path}"


@pytest.mark.parametrize("entry", MODELS.values(), ids=lambda entry: entry.name)
def test_figures_are_those_of_the_records(root: Path, entry: ModelEntry) -> None:
    records = {record["seed"]: record for record in (read(root / path) for path in entry.records)}
    published = [record for record in records.values() if record["published"]]
    assert len(published) == 1, f"{entry.name}: records"
    for figure in entry.figures:
        place = f"{entry.name}: figures: {figure.metric} of {figure.of}"
        assert figure.of in (OF_WEIGHTS, OF_RUN)
        if figure.of == OF_WEIGHTS:
            assert figure.seeds == (published[0]["seed"],), place
            assert figure.value == published[0]["published"][figure.metric], place
        else:
            assert sorted(records) == sorted(figure.seeds), place
            values = [records[seed]["metrics"][figure.metric] for seed in figure.seeds]
            assert figure.value == pytest.approx(fmean(values), abs=5e-5), place
            spread = stdev(values) if len(values) > 1 else None
            assert figure.spread == (None if spread is None else pytest.approx(spread, abs=5e-5)), place
        assert figure.signature == published[0]["signatures"].get(figure.metric), place
    record = published[0]
    weights = entry.files[WEIGHTS]
    for field, said, found in (
        ("parameters", entry.parameters, record["parameters"]),
        ("commit", entry.commit, record["git"]["commit"]),
        ("uncommitted_changes", entry.uncommitted_changes, record["git"]["dirty"]),
        ("dtype", entry.dtype, record["published"]["dtype"]),
        ("files", (weights.size, weights.sha256), (record["published"]["bytes"], record["published"]["sha256"])),
    ):
        assert said == found, f"{entry.name}: {field}"


@pytest.mark.parametrize("entry", SHIPPED.values(), ids=lambda entry: entry.name)
def test_publishing_again_changes_nothing(root: Path, entry: ModelEntry) -> None:
    records = [read(root / path) for path in entry.records]
    folder = root / str(entry.folder)
    made = entry_of_record(folder, records, url=entry.url, variant=variant_of(entry))
    for field in dataclasses.fields(entry):
        assert getattr(entry, field.name) == getattr(made, field.name), f"{entry.name}: {field.name}"
    assert (folder / "README.md").read_text(encoding="utf-8") == model_card(entry), f"{entry.name}: its card"


@pytest.mark.parametrize("entry", MODELS.values(), ids=lambda entry: entry.name)
def test_connection_recipe_and_licence(root: Path, entry: ModelEntry) -> None:
    assert str(parse_connection(entry.connection)) == entry.connection, f"{entry.name}: connection"
    assert entry.name.startswith(f"{entry.architecture}_{parse_connection(entry.connection).slug}."), entry.name
    recipe = load_recipe(root / entry.recipe, overrides=[f"{key}={value}" for key, value in entry.overrides.items()])
    assert {Path(path).parent.name for path in entry.records} == {recipe.run_name}, f"{entry.name}: recipe"
    text = (root / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith(entry.licence), f"{entry.name}: licence"
